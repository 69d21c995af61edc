// Package front turns listening sockets into finished TLS connections.
//
// A [Front] accepts on any number of listeners, reads PROXY protocol headers
// from proxies that are trusted, does the TLS handshake within a deadline, and
// offers what came of it through [Front.Listener], an ordinary net.Listener for
// http.Server:
//
//	f, err := front.New(front.Options{Sessions: resumer})
//	change, err := f.Prepare(front.Config{Listeners: []front.ListenerOptions{
//		{Address: ":8443", Table: table},
//	}})
//	change.Install()
//	go f.Run(ctx)
//	server := &http.Server{Handler: h, ConnContext: front.ConnContext}
//	err = server.Serve(f.Listener())
//
// The model: each listener has a [Table] that picks the [Policy] of a
// connection by its server name. A policy is immutable; a reload makes new
// tables and installs them, listeners that stay are never closed, and
// connections that are open keep what they were made with.
//
// A connection that resumes a TLS session skips GetCertificate and
// VerifyPeerCertificate, so everything that decides who may come in happens in
// GetConfigForClient, in VerifyConnection, or after the handshake, for full and
// resumed handshakes alike. A session is stored only after all of it passed.
//
// Connections arrive at http.Server as *tls.Conn with "h2" or "http/1.1"
// negotiated. Leave http.Server.TLSConfig nil and call Serve, never ServeTLS.
// [ConnOf] and [FromContext] tell what is known of a connection.
//
// What it does not do: it speaks no HTTP, except for one plain answer to
// clients that forgot the TLS; it holds no certificates and no sessions.
package front
