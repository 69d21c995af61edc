# A static binary, the system's CA certificates, and nothing else: no shell, no
# package manager, no user but a number.
#
#   docker build -t tlsproxy .
#   docker run --read-only -p 443:8443 -p 80:8080 \
#       -v ./config.yaml:/etc/tlsproxy/config.yaml:ro -v tlsproxy-state:/var/lib/tlsproxy tlsproxy
#
# deploy/image_test.go builds the binary with the command below and runs it as
# the image would, so keep the two stages simple.

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/tlsproxy ./cmd/tlsproxy
RUN mkdir -p /out/state /out/config

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=0:0 /out/tlsproxy /tlsproxy
COPY --from=build --chown=0:0 /out/config /etc/tlsproxy
COPY --from=build --chown=65532:65532 /out/state /var/lib/tlsproxy
ENV STATE_DIRECTORY=/var/lib/tlsproxy
USER 65532:65532
EXPOSE 8443 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s CMD ["/tlsproxy", "healthcheck", "-config", "/etc/tlsproxy/config.yaml"]
ENTRYPOINT ["/tlsproxy"]
CMD ["-config", "/etc/tlsproxy/config.yaml"]
