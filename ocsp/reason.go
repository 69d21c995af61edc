package ocsp

import (
	"errors"
	"fmt"
)

// Reason says in one word why a response was refused or could not be had. It
// is a value of the label result of the metric ocsp_fetches_total.
type Reason string

// What a responder answered. The first three are no refusals.
const (
	ResultGood    Reason = "good"
	ResultRevoked Reason = "revoked"
	ResultUnknown Reason = "unknown" // also the "never issued" form of revoked (RFC 6960, section 2.2)

	ReasonMalformedRequest Reason = "malformed_request" // OCSPResponseStatus 1
	ReasonInternalError    Reason = "internal_error"    // OCSPResponseStatus 2
	ReasonTryLater         Reason = "try_later"         // OCSPResponseStatus 3
	ReasonSigRequired      Reason = "sig_required"      // OCSPResponseStatus 5
	ReasonUnauthorized     Reason = "unauthorized"      // OCSPResponseStatus 6
	ReasonBadStatus        Reason = "bad_status"        // any other OCSPResponseStatus
)

// What was wrong with a response.
const (
	ReasonMalformed          Reason = "malformed"           // not a DER-encoded OCSP response
	ReasonUnsupported        Reason = "unsupported"         // a response type, hash or signature algorithm that is not known or too weak
	ReasonCriticalExtension  Reason = "critical_extension"  // an unknown critical extension
	ReasonWrongCertificate   Reason = "wrong_certificate"   // says nothing about this serial number
	ReasonWrongIssuer        Reason = "wrong_issuer"        // the serial number, but of another issuer
	ReasonWrongResponder     Reason = "wrong_responder"     // the responder ID names neither the issuer nor an embedded certificate
	ReasonBadSignature       Reason = "bad_signature"       // the signature does not verify
	ReasonUnauthorizedSigner Reason = "unauthorized_signer" // signed by a certificate that may not
	ReasonSignerExpired      Reason = "signer_expired"      // the delegated signer is outside its validity
	ReasonNotYetValid        Reason = "not_yet_valid"       // thisUpdate or producedAt in the future
	ReasonExpired            Reason = "expired"             // nextUpdate, or the certificate's end, has passed
	ReasonOlder              Reason = "older"               // older than the one already held
)

// What was wrong with the way to a response.
const (
	ReasonNoResponder     Reason = "no_responder"     // the certificate names no responder that can be asked
	ReasonNoIssuer        Reason = "no_issuer"        // the issuer's certificate is not known
	ReasonBadURL          Reason = "bad_url"          // the responder's URL is unusable
	ReasonNetwork         Reason = "network"          // no connection, or it broke
	ReasonTimeout         Reason = "timeout"          // no full answer within the deadline
	ReasonHTTPStatus      Reason = "http_status"      // an HTTP status other than 200
	ReasonContentEncoding Reason = "content_encoding" // a content coding that was not asked for
	ReasonTooLarge        Reason = "too_large"        // a body of more than 64 KiB
	ReasonRedirect        Reason = "redirect"         // too many redirects, or one away from http and https
	ReasonBreakerOpen     Reason = "breaker_open"     // the responder failed too often; it is left alone for a while
)

// Error is why there is no usable response. Use [ReasonOf] to branch on it.
type Error struct {
	Reason Reason
	Detail string // in words; untrusted text in it is quoted
	Err    error  // the cause, if there is one

	code int // the HTTP status of ReasonHTTPStatus
}

// Error says the reason in words, then the details.
func (e *Error) Error() string {
	msg := e.Reason.String()
	if e.Detail != "" {
		msg += ": " + e.Detail
	}
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the reason of the first [Error] in err's tree, or "".
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

func refuse(r Reason, format string, args ...any) error {
	return &Error{Reason: r, Detail: fmt.Sprintf(format, args...)}
}

// String says the reason in words.
func (r Reason) String() string {
	if words, ok := reasonWords[r]; ok {
		return words
	}
	return string(r)
}

var reasonWords = map[Reason]string{
	ResultGood:               "the certificate is good",
	ResultRevoked:            "the certificate is revoked",
	ResultUnknown:            "the responder does not know the certificate",
	ReasonMalformedRequest:   "the responder calls the request malformed",
	ReasonInternalError:      "the responder reports an internal error",
	ReasonTryLater:           "the responder asks to try later",
	ReasonSigRequired:        "the responder wants signed requests",
	ReasonUnauthorized:       "the responder is not authorized to answer for this certificate (it may not have heard of it yet)",
	ReasonBadStatus:          "the responder answered with an undefined status",
	ReasonMalformed:          "the answer is not an OCSP response",
	ReasonUnsupported:        "the response uses something that is not supported",
	ReasonCriticalExtension:  "the response has an unknown critical extension",
	ReasonWrongCertificate:   "the response is about another certificate",
	ReasonWrongIssuer:        "the response is about a certificate of another issuer",
	ReasonWrongResponder:     "the response names a responder whose certificate is not there",
	ReasonBadSignature:       "the signature of the response is wrong",
	ReasonUnauthorizedSigner: "the signer may not sign for this issuer",
	ReasonSignerExpired:      "the signer's certificate is outside its validity",
	ReasonNotYetValid:        "the response is from the future",
	ReasonExpired:            "the response has expired",
	ReasonOlder:              "the response is older than the one held",
	ReasonNoResponder:        "the certificate names no OCSP responder",
	ReasonNoIssuer:           "the issuer's certificate is missing",
	ReasonBadURL:             "the responder's URL cannot be used",
	ReasonNetwork:            "the responder cannot be reached",
	ReasonTimeout:            "the responder did not answer in time",
	ReasonHTTPStatus:         "the responder answered with an HTTP error",
	ReasonContentEncoding:    "the answer has a content coding that was not asked for",
	ReasonTooLarge:           "the answer is too large",
	ReasonRedirect:           "the responder redirects in a way that is not followed",
	ReasonBreakerOpen:        "the responder failed repeatedly and is not asked for a while",
}
