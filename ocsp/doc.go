// Package ocsp keeps a fresh OCSP response for every certificate and staples
// it into TLS handshakes; it also checks client certificates by OCSP.
//
// A [Stapler] sits around GetCertificate like middleware:
//
//	stapler, err := ocsp.New(ocsp.Options{StateDir: "/var/lib/tlsproxy"})
//	go stapler.Run(ctx)                        // fetches and refreshes
//	err = stapler.Prepare(ctx, cert)           // before cert is first served
//	config.GetCertificate = stapler.GetCertificate(certs.GetCertificate)
//	stapler.Release(cert)                      // when it is served no more
//
// A handshake looks the staple up in a cache by the SHA-256 of the leaf. It
// never fetches, never waits and, once a staple was served, never allocates.
// Only a response that is successful, good, current and verified in full by
// [Verify] is ever stapled. A certificate without a responder is a normal
// state and costs nothing.
//
// [ClientChecker] asks about client certificates, with a short deadline; what
// a missing answer means is left to its caller.
//
// The package does not staple responses for intermediates (RFC 6961 died with
// TLS 1.3), sends no nonces (they defeat the responders' caches), and does not
// choose certificates.
package ocsp
