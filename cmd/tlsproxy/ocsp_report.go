package main

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/tlsproxy/tlsproxy/ocsp"
)

// The verdicts beside good, revoked and unknown.
const (
	verdictRefused    = "refused"    // there is a response, and it must not be relied on
	verdictNone       = "none"       // there is no response
	verdictUnverified = "unverified" // nothing was asked about it
)

// ocspReport is what the ocsp commands print.
type ocspReport struct {
	Source      string           `json:"source"`
	Verdict     string           `json:"verdict"`
	Reason      string           `json:"reason,omitempty"` // the label of ocsp_fetches_total
	Words       string           `json:"words,omitempty"`
	Certificate *ocspCertificate `json:"certificate,omitempty"`
	Response    *ocspResponse    `json:"response,omitempty"` // of a verified response
	Contents    *ocsp.Contents   `json:"contents,omitempty"` // of any response

	raw []byte    // to be written to -out
	at  time.Time // as which the times are told; zero: now
}

type ocspCertificate struct {
	Subject    string    `json:"subject"`
	Names      []string  `json:"names,omitempty"`
	Serial     string    `json:"serial"`
	SHA256     string    `json:"sha256"`
	NotAfter   time.Time `json:"not_after"`
	MustStaple bool      `json:"must_staple"`
	Responders []string  `json:"responders,omitempty"`
}

type ocspResponse struct {
	ThisUpdate time.Time `json:"this_update"`
	NextUpdate time.Time `json:"next_update,omitzero"`
	ProducedAt time.Time `json:"produced_at"`
	StapledTo  time.Time `json:"stapled_to"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
	Reason     string    `json:"revocation_reason,omitempty"`
	Signer     string    `json:"signer"`
	Signature  string    `json:"signature"`
	Size       int       `json:"size"`
}

func newOCSPReport(source string, leaf *x509.Certificate) *ocspReport {
	report := &ocspReport{Source: source}
	if leaf == nil {
		return report
	}
	sum := sha256.Sum256(leaf.Raw)
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	report.Certificate = &ocspCertificate{
		Subject: leaf.Subject.String(), Names: names, Serial: leaf.SerialNumber.Text(16), SHA256: hex.EncodeToString(sum[:]),
		NotAfter: leaf.NotAfter, MustStaple: ocsp.MustStaple(leaf), Responders: leaf.OCSPServer,
	}
	return report
}

// decide takes over what the verifier said.
func (o *ocspReport) decide(r *ocsp.Response, err error) {
	if err != nil {
		o.Verdict, o.Reason, o.Words = verdictRefused, string(ocsp.ReasonOf(err)), err.Error()
		switch ocsp.ReasonOf(err) {
		case ocsp.ReasonNoResponder, ocsp.ReasonNoIssuer, ocsp.ReasonBadURL, ocsp.ReasonNetwork, ocsp.ReasonTimeout, ocsp.ReasonHTTPStatus, ocsp.ReasonRedirect:
			o.Verdict = verdictNone
		}
		return
	}
	o.Verdict = r.Status.String()
	o.Words = ocsp.Reason(o.Verdict).String()
	signer := "the issuer"
	if r.Signer != nil {
		signer = "delegated: " + r.Signer.Subject.String()
	}
	o.Response = &ocspResponse{
		ThisUpdate: r.ThisUpdate, NextUpdate: r.NextUpdate, ProducedAt: r.ProducedAt, StapledTo: r.End, RevokedAt: r.RevokedAt,
		Signer: signer, Signature: r.SignatureAlgorithm, Size: len(r.Raw),
	}
	if r.Status == ocsp.Revoked {
		o.Response.Reason = ocsp.RevocationReasonString(r.RevocationReason)
	}
}

// print writes the report and returns the exit status.
func (o *ocspReport) print(f *ocspFlags, stdout, stderr io.Writer) int {
	var err error
	switch {
	case f.out == "-" && o.raw != nil: // standard output is taken
	case f.json:
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(o)
	default:
		err = o.writeText(stdout)
	}
	if err == nil && o.raw != nil {
		err = writeOCSPFile(f.out, o.raw, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "tlsproxy:", err)
		return exitFailure
	}
	if o.Verdict != ocsp.Good.String() && o.Verdict != verdictUnverified {
		return exitFailure
	}
	return exitOK
}

func writeOCSPFile(path string, der []byte, stdout io.Writer) error {
	if path == "-" {
		_, err := stdout.Write(der)
		return err
	}
	return os.WriteFile(path, der, 0o644)
}

// writeText prints one "name: value" a line, values aligned.
func (o *ocspReport) writeText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, value any) {
		if s := fmt.Sprint(value); s != "" && s != "[]" {
			fmt.Fprintf(t, "%s:\t%s\n", name, strings.Map(printable, s))
		}
	}
	verdict := o.Verdict
	if o.Words != "" {
		verdict += " (" + o.Words + ")"
	}
	line("source", o.Source)
	line("verdict", verdict)
	if c := o.Certificate; c != nil {
		line("certificate", c.Subject)
		line("names", strings.Join(c.Names, ", "))
		line("serial", c.Serial)
		line("not after", o.moment(c.NotAfter))
		line("must-staple", c.MustStaple)
		line("responders", strings.Join(c.Responders, ", "))
	}
	switch {
	case o.Response != nil:
		o.Response.lines(line, o.moment)
	case o.Contents != nil:
		contentLines(o.Contents, line, o.moment)
	}
	return t.Flush()
}

func (r *ocspResponse) lines(line func(string, any), moment func(time.Time) string) {
	line("this update", moment(r.ThisUpdate))
	line("next update", moment(r.NextUpdate))
	line("produced at", moment(r.ProducedAt))
	line("stapled until", moment(r.StapledTo))
	line("revoked at", moment(r.RevokedAt))
	line("revocation reason", r.Reason)
	line("signed by", r.Signer)
	line("signature", r.Signature)
	line("size", fmt.Sprintf("%d bytes", r.Size))
}

// printable keeps what a server says from steering the terminal.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return unicode.ReplacementChar
}

// contentLines prints a response that was not verified, or refused.
func contentLines(c *ocsp.Contents, line func(string, any), moment func(time.Time) string) {
	line("responder", c.Responder)
	line("produced at", moment(c.ProducedAt))
	line("signature", c.Signature)
	line("embedded", strings.Join(c.Certificates, "; "))
	for _, a := range c.Answers {
		line("answer for", a.Serial)
		line("  status", a.Status)
		line("  this update", moment(a.ThisUpdate))
		line("  next update", moment(a.NextUpdate))
		line("  revoked at", moment(a.RevokedAt))
		line("  revocation reason", a.Reason)
		line("  issuer name hash", a.NameHash)
		line("  issuer key hash", a.KeyHash)
	}
}

// moment says how far away a time is; "" for none.
func (o *ocspReport) moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	at := o.at
	if at.IsZero() {
		at = time.Now()
	}
	left := t.Sub(at).Round(time.Second)
	if left < 0 {
		return fmt.Sprintf("%s (%v ago)", t.UTC().Format(time.RFC3339), -left)
	}
	return fmt.Sprintf("%s (in %v)", t.UTC().Format(time.RFC3339), left)
}
