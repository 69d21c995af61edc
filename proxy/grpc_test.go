package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tlsproxy/tlsproxy/upstream"
)

// grpcBackend is a gRPC server that echoes.
type grpcBackend struct {
	testgrpc.UnimplementedTestServiceServer
	cancelled chan struct{}
}

func (grpcBackend) UnaryCall(ctx context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	if s := in.GetResponseStatus(); s != nil {
		grpc.SetTrailer(ctx, metadata.Pairs("why-bin", "\x00\x01"))
		return nil, status.Error(codes.Code(s.Code), s.Message)
	}
	grpc.SetTrailer(ctx, metadata.Pairs("took", "1ms"))
	return &testgrpc.SimpleResponse{Payload: in.GetPayload()}, nil
}

func (b grpcBackend) FullDuplexCall(stream testgrpc.TestService_FullDuplexCallServer) error {
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			close(b.cancelled)
			return err
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
}

// startGRPC starts a gRPC server and returns its address.
func startGRPC(t *testing.T, b grpcBackend, creds credentials.TransportCredentials) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.Creds(creds))
	testgrpc.RegisterTestServiceServer(srv, b)
	go srv.Serve(ln)
	t.Cleanup(srv.Stop)
	return ln.Addr().String()
}

func grpcClient(t *testing.T, r *rig) testgrpc.TestServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(r.addr, grpc.WithTransportCredentials(credentials.NewTLS(clientTLS(h2))), grpc.WithAuthority("app.test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return testgrpc.NewTestServiceClient(conn)
}

// A real gRPC client reaches a real gRPC server, over h2c and over TLS.
func TestGRPC(t *testing.T) {
	ca, cert := testPKI()
	serverTLS := credentials.NewServerTLSFromCert(cert)
	tests := []struct {
		name  string
		url   string
		creds credentials.TransportCredentials
	}{
		{"h2c", "h2c://", insecure.NewCredentials()},
		{"h2", "h2://", serverTLS},
		{"https", "https://", serverTLS},
	}
	backendTLS := &tls.Config{RootCAs: ca.Pool()}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := grpcBackend{cancelled: make(chan struct{})}
			pool := newPool(t, upstream.Options{
				Name:     "grpc",
				Backends: []upstream.Backend{{URL: tt.url + startGRPC(t, b, tt.creds)}},
				TLS:      func() *tls.Config { return backendTLS },
			})
			r := startRig(t, h2, pool, nil)
			client := grpcClient(t, r)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			testUnary(ctx, t, client)
			testStatus(ctx, t, client)
			testDuplex(ctx, t, client, b)
		})
	}
}

func testUnary(ctx context.Context, t *testing.T, client testgrpc.TestServiceClient) {
	var trailer metadata.MD
	payload := &testgrpc.Payload{Body: make([]byte, 300_000)}
	res, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: payload}, grpc.Trailer(&trailer))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(res.GetPayload().GetBody()); n != 300_000 {
		t.Errorf("%d bytes came back", n)
	}
	if took := fmt.Sprint(trailer.Get("took")); took != "[1ms]" {
		t.Errorf("trailer %s", took)
	}
}

func testStatus(ctx context.Context, t *testing.T, client testgrpc.TestServiceClient) {
	var trailer metadata.MD
	_, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{
		ResponseStatus: &testgrpc.EchoStatus{Code: int32(codes.DataLoss), Message: "gone: ü"},
	}, grpc.Trailer(&trailer))
	if s := status.Convert(err); s.Code() != codes.DataLoss || s.Message() != "gone: ü" {
		t.Errorf("got %v", err)
	}
	if why := fmt.Sprintf("%q", trailer.Get("why-bin")); why != `["\x00\x01"]` {
		t.Errorf("trailer %s", why)
	}
	if _, err := client.EmptyCall(ctx, &testgrpc.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want Unimplemented", err)
	}
}

func testDuplex(ctx context.Context, t *testing.T, client testgrpc.TestServiceClient, b grpcBackend) {
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ping := func(s testgrpc.TestService_FullDuplexCallClient, body string) {
		t.Helper()
		if err := s.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: []byte(body)}}); err != nil {
			t.Fatal(err)
		}
		res, err := s.Recv()
		if err != nil || string(res.GetPayload().GetBody()) != body {
			t.Fatalf("sent %q, got %v, %v", body, res, err)
		}
	}
	for i := range 5 {
		ping(stream, fmt.Sprint("message ", i))
	}
	stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v, want EOF", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	stream, err = client.FullDuplexCall(cancelled)
	if err != nil {
		t.Fatal(err)
	}
	ping(stream, "x")
	cancel()
	select {
	case <-b.cancelled:
	case <-time.After(10 * time.Second):
		t.Error("the server was not told of the cancellation")
	}
}

func TestGRPCUnavailable(t *testing.T) {
	r := startRig(t, h2, poolOf(t, "h2c://127.0.0.1:1"), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := grpcClient(t, r).UnaryCall(ctx, &testgrpc.SimpleRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
}
