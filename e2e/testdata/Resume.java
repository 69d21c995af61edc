import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

/** Connects twice with one SSLContext and says whether the second connection resumed. */
public class Resume {
    public static void main(String[] args) throws Exception {
        String host = args[0];
        int port = Integer.parseInt(args[1]);
        KeyStore trust = KeyStore.getInstance(KeyStore.getDefaultType());
        trust.load(null, null);
        try (InputStream in = Files.newInputStream(Path.of(args[2]))) {
            trust.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        TrustManagerFactory trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trusted.init(trust);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trusted.getTrustManagers(), null);
        request(context, host, port, args[3]);
        System.out.println(request(context, host, port, args[3]));
    }

    /** The echo backend tells how the server saw the connection. */
    static String request(SSLContext context, String host, int port, String version) throws Exception {
        try (SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(host, port)) {
            socket.setEnabledProtocols(new String[] {version});
            socket.startHandshake();
            SSLSession session = socket.getSession();
            if (!session.getProtocol().equals(version)) {
                throw new IllegalStateException("negotiated " + session.getProtocol());
            }
            socket.getOutputStream().write("GET / HTTP/1.0\r\nHost: localhost\r\n\r\n".getBytes("US-ASCII"));
            return new String(socket.getInputStream().readAllBytes(), "US-ASCII");
        }
    }
}
