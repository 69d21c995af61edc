// Package clientauth decides which client certificates may enter one site.
//
// A [Verifier] holds the site's rules: the mode, the certificate authorities,
// an allow-list and certificate revocation lists, all read from files that it
// watches. It is given to a tls.Config of one connection, and asked once more
// after the handshake for the checks that touch the network:
//
//	v, err := clientauth.New(clientauth.Options{
//		Site:    "app",
//		Mode:    clientauth.Require,
//		CAFiles: []string{"/etc/tls/clients.pem"},
//	})
//	go v.Run(ctx)                      // follows the files
//	digest, err := v.Configure(config) // per connection, before the handshake
//	err = v.Authorize(ctx, state)      // per connection, after the handshake
//
// The model: everything a decision needs is in one immutable [Snapshot] behind
// an atomic pointer. A changed file makes a new snapshot. A file that is
// missing or broken makes a snapshot with an error, and the site refuses every
// client until the file is whole again: this package fails closed, and only for
// the site whose file it is. An empty set of authorities trusts nobody; it never
// falls back to the roots of the system.
//
// Every check runs on every connection, resumed or not. crypto/tls calls
// VerifyConnection on resumption but not VerifyPeerCertificate, so nothing here
// uses the latter.
//
// What it does not do: it does not fetch CRLs over the network, it speaks no
// OCSP itself (see [RevocationChecker]), and it does not end connections that
// are already open when a certificate is revoked.
package clientauth
