"""Connects twice, the second time with the session of the first, and says
whether that resumed."""
import socket
import ssl
import sys

host, port, ca, version = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.minimum_version = context.maximum_version = ssl.TLSVersion[version]


def connect(session=None):
    raw = socket.create_connection((host, int(port)))
    with context.wrap_socket(raw, server_hostname=host, session=session) as conn:
        conn.sendall(b"GET / HTTP/1.0\r\nHost: %s\r\n\r\n" % host.encode())
        while conn.recv(4096):  # the ticket of TLS 1.3 comes before the answer
            pass
        return conn.session, conn.session_reused


first, _ = connect()
_, reused = connect(first)
print("resumed:", reused)
