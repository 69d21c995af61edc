// Package certs holds the server certificates: it loads them from files,
// obtains them by ACME, issues them from a local development CA, keeps all of
// them current, and picks one per handshake.
//
//	store, err := certs.New(certs.Options{StateDir: dir})
//	set, err := store.Load(ctx, sources) // everything that can fail
//	store.Install(set)                   // nothing that can
//	go store.Run(ctx)                    // watches files, obtains and renews
//	config := &tls.Config{GetCertificate: store.GetCertificate}
//
// A reload is the same pair of calls: a [Set] that does not load leaves the
// installed one serving. Between reloads [Store.Run] notices changed files,
// renewals by other replicas and expiring certificates by itself; what it
// cannot load it reports in [Store.Status] and keeps the certificate it had.
//
// A name is served by the certificates that carry it: an exact name beats a
// wildcard, a wildcard stands for one label, anything else gets the default
// certificate or is refused. When an ECDSA and an RSA certificate carry the
// same name the client's hello decides, ECDSA first. A lookup reads one
// immutable index and allocates nothing.
//
// A [Client] is the other side: what tlsproxy itself shows to the servers that it
// connects to, and trusts them by, followed in the same way.
//
// The package does not staple: the functions Prepare and Release of [Options]
// tell a stapler which certificates are in use. It does not answer OCSP for
// the development CA either, and listens nowhere: challenges are answered by
// [Store.GetCertificate] and [Store.HTTPChallenge] on the program's own
// listeners.
package certs
