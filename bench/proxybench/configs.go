package proxybench

// The configurations: what the project's own documentation shows for a TLS
// terminating proxy, kept connections to the backend, no access log, one worker or
// thread a processor, X25519 alone. All else is the default.

const backendConf = `
daemon off;
worker_processes 1;
pid {{.Dir}}/pid;
error_log {{.Dir}}/error.log error;
events { worker_connections 8192; }
http {
	access_log off;
	keepalive_requests 1000000000;
	keepalive_timeout 600s;
	sendfile on;
	server {
		listen 127.0.0.1:{{.Port}} backlog=4096;
		location = /bulk { alias {{.Dir}}/bulk; }
		location / { default_type text/plain; return 200 "Hello, world\n"; }
	}
}
`

const nginxConf = `
daemon off;
worker_processes auto;
pid {{.Dir}}/pid;
error_log {{.Dir}}/error.log error;
events { worker_connections 8192; }
http {
	access_log off;
	proxy_temp_path {{.Dir}}/proxy;
	client_body_temp_path {{.Dir}}/body;
	keepalive_requests 1000000000;
	keepalive_timeout 600s;
	upstream backend { server {{.Backend}}; keepalive 256; keepalive_requests 1000000000; }
	server {
		listen 127.0.0.1:{{.Port}} ssl http2 backlog=4096;
		server_name localhost;
		ssl_certificate {{.Cert}};
		ssl_certificate_key {{.Key}};
		ssl_protocols TLSv1.2 TLSv1.3;
		ssl_ecdh_curve X25519;
		ssl_session_cache shared:tls:32m;
		ssl_session_timeout 1d;
		location / {
			proxy_pass http://backend;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header Host $host;
			proxy_set_header X-Forwarded-For $remote_addr;
			proxy_set_header X-Forwarded-Proto $scheme;
		}
	}
}
`

const haproxyConf = `
global
	maxconn 4096
	ssl-default-bind-options ssl-min-ver TLSv1.2
defaults
	mode http
	timeout connect 5s
	timeout client 600s
	timeout server 600s
	timeout http-keep-alive 600s
	option forwardfor
	http-reuse always
frontend tls
	bind 127.0.0.1:{{.Port}} backlog 4096 ssl crt {{.Pair}} alpn h2,http/1.1 curves X25519
	http-request set-header X-Forwarded-Proto https
	default_backend web
backend web
	server web {{.Backend}}
`

const hitchConf = `
frontend = "[127.0.0.1]:{{.Port}}"
backend = "[127.0.0.1]:{{.BackendPort}}"
pem-file = "{{.Pair}}"
tls-protos = TLSv1.2 TLSv1.3
ecdh-curve = "X25519"
workers = {{.Processors}}
backlog = 4096
daemon = off
{{if .Root}}user = "nobody"
group = "nogroup"{{end}}
`

const caddyConf = `
{
	admin off
	auto_https off
	persist_config off
	log {
		level ERROR
	}
}
https://localhost:{{.Port}} {
	bind 127.0.0.1
	tls {{.Cert}} {{.Key}} {
		curves x25519
	}
	reverse_proxy {{.Backend}} {
		transport http {
			keepalive_idle_conns_per_host 256
		}
	}
}
`

const tlsproxyConf = `
listeners:
  - address: "127.0.0.1:{{.Port}}"
certificates:
  - {cert: {{.Cert}}, key: {{.Key}}}
tls: {curves: [X25519]}
sites:
  - hosts: [localhost]
    routes:
      - {path: /, upstream: web}
upstreams:
  web: {backends: ["http://{{.Backend}}"]}
admin: {address: "127.0.0.1:{{.Admin}}"}
access_log: {output: {{if .Log}}{{.Log}}{{else}}off{{end}}}
log: {level: error}
state_dir: {{.Dir}}/state
`
