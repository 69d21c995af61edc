// Connects twice, the second time with the session of the first, and prints
// what the server saw of the second.
const fs = require('fs');
const tls = require('tls');

const [host, port, ca, version] = process.argv.slice(2);

function request(session) {
  return new Promise((resolve, reject) => {
    let text = '';
    let latest;
    const socket = tls.connect({
      host, port: Number(port), servername: host, ca: fs.readFileSync(ca),
      minVersion: version, maxVersion: version, session,
    }, () => socket.write('GET / HTTP/1.0\r\nHost: ' + host + '\r\n\r\n'));
    socket.on('session', (s) => { latest = s; });
    socket.on('data', (d) => { text += d; });
    socket.on('error', reject);
    socket.on('close', () => resolve({ text, session: latest }));
  });
}

request().then((first) => request(first.session)).then((second) => console.log(second.text));
