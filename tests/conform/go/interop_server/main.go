// interop_server is the gRPC project's interoperability test service on a loopback address; the one of the
// grpc-go module listens on every address of the machine.
//
// usage: interop_server -listen 127.0.0.1:0 [-cert FILE -key FILE] [-max-age 1s]; prints `listening grpc ADDR`, then `ready`.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"time"
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/orca"
)

// What the module's own server sets: orca_oob wants a report after each second, the public minimum is 30 s.
//
//go:linkname allowAnyInterval google.golang.org/grpc/internal.ORCAAllowAnyMinReportingInterval
var allowAnyInterval any

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address")
	cert := flag.String("cert", "", "certificate chain (PEM): TLS")
	key := flag.String("key", "", "its private key")
	age := flag.Duration("max-age", 0, "connections older than this get GOAWAY; 0: none")
	flag.Parse()

	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	recorder := orca.NewServerMetricsRecorder()
	reports := orca.ServiceOptions{MinReportingInterval: time.Second, ServerMetricsProvider: recorder}
	allowAnyInterval.(func(*orca.ServiceOptions))(&reports)
	options := []grpc.ServerOption{orca.CallMetricsServerOption(recorder)}
	if *age != 0 {
		options = append(options, grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: *age}))
	}
	if *cert != "" {
		creds, err := credentials.NewServerTLSFromFile(*cert, *key)
		if err != nil {
			log.Fatal(err)
		}
		options = append(options, grpc.Creds(creds))
	}
	server := grpc.NewServer(options...)
	if err := orca.Register(server, reports); err != nil {
		log.Fatal(err)
	}
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer(interop.NewTestServerOptions{MetricsRecorder: recorder}))
	fmt.Printf("listening grpc %s\nready\n", listener.Addr())
	log.Fatal(server.Serve(listener))
}
