package ocsp

import (
	"crypto"
	"encoding/asn1"
	"math/big"
	"time"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"
)

// maxResponse bounds the size of a response in bytes, wherever it comes from.
const maxResponse = 64 << 10

// maxEmbedded bounds how many embedded certificates are looked at, and with
// them the signatures that one response can make us check.
const maxEmbedded = 16

var oidBasicResponse = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 48, 1, 1}

// basicResponse is a BasicOCSPResponse (RFC 6960, section 4.2.1) as it was
// sent: parsed in full, nothing verified.
type basicResponse struct {
	signed    []byte // tbsResponseData with tag and length: what is signed
	algorithm []byte // signatureAlgorithm with tag and length
	signature []byte
	certs     [][]byte // embedded certificates, DER

	responderName []byte // DER of a Name; nil if the responder is named by key
	responderKey  []byte // SHA-1 of the responder's key; nil if it is named by name
	producedAt    time.Time
	singles       []singleResponse
	critical      asn1.ObjectIdentifier // of the first critical response extension
}

// singleResponse is a SingleResponse.
type singleResponse struct {
	hash       crypto.Hash // 0: one that is not known
	nameHash   []byte
	keyHash    []byte
	serial     *big.Int
	status     Status
	revokedAt  time.Time
	reason     int // CRLReason; -1: none given
	thisUpdate time.Time
	nextUpdate time.Time             // zero: none
	critical   asn1.ObjectIdentifier // of the first critical extension
}

// parse takes a DER-encoded OCSPResponse apart. An unsuccessful one, and one
// that is not a basic response, is an error with its own reason.
func parse(der []byte) (*basicResponse, error) {
	if len(der) > maxResponse {
		return nil, refuse(ReasonTooLarge, "%d bytes", len(der))
	}
	input := cryptobyte.String(der)
	var outer cryptobyte.String
	var status int
	if !input.ReadASN1(&outer, cbasn1.SEQUENCE) || !input.Empty() || !outer.ReadASN1Enum(&status) {
		return nil, malformed("OCSPResponse")
	}
	if status != 0 {
		return nil, unsuccessful(status)
	}
	var wrapped, typed, body cryptobyte.String
	var oid asn1.ObjectIdentifier
	if !outer.ReadASN1(&wrapped, tag(0)) || !outer.Empty() ||
		!wrapped.ReadASN1(&typed, cbasn1.SEQUENCE) || !wrapped.Empty() ||
		!typed.ReadASN1ObjectIdentifier(&oid) ||
		!typed.ReadASN1(&body, cbasn1.OCTET_STRING) || !typed.Empty() {
		return nil, malformed("ResponseBytes")
	}
	if !oid.Equal(oidBasicResponse) {
		return nil, refuse(ReasonUnsupported, "response type %v", oid)
	}
	return parseBasic(body)
}

func parseBasic(input cryptobyte.String) (*basicResponse, error) {
	var outer, data cryptobyte.String
	r := new(basicResponse)
	if !input.ReadASN1(&outer, cbasn1.SEQUENCE) || !input.Empty() ||
		!outer.ReadASN1Element(&data, cbasn1.SEQUENCE) {
		return nil, malformed("BasicOCSPResponse")
	}
	r.signed = data
	var algorithm cryptobyte.String
	if !outer.ReadASN1Element(&algorithm, cbasn1.SEQUENCE) || !outer.ReadASN1BitStringAsBytes(&r.signature) {
		return nil, malformed("signature")
	}
	r.algorithm = algorithm
	if err := r.readCertificates(&outer); err != nil {
		return nil, err
	}
	if err := r.readData(data); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *basicResponse) readCertificates(outer *cryptobyte.String) error {
	var wrapped, list cryptobyte.String
	var present bool
	if !outer.ReadOptionalASN1(&wrapped, &present, tag(0)) || !outer.Empty() {
		return malformed("certificates")
	}
	if !present {
		return nil
	}
	if !wrapped.ReadASN1(&list, cbasn1.SEQUENCE) || !wrapped.Empty() {
		return malformed("certificates")
	}
	for !list.Empty() {
		var cert cryptobyte.String
		if !list.ReadASN1Element(&cert, cbasn1.SEQUENCE) {
			return malformed("certificates")
		}
		r.certs = append(r.certs, cert)
	}
	return nil
}

// readData reads ResponseData.
func (r *basicResponse) readData(element cryptobyte.String) error {
	var data, responses cryptobyte.String
	var version int
	if !element.ReadASN1(&data, cbasn1.SEQUENCE) || !data.ReadOptionalASN1Integer(&version, tag(0), 0) {
		return malformed("ResponseData")
	}
	if version != 0 {
		return refuse(ReasonUnsupported, "response version %d", version)
	}
	if err := r.readResponder(&data); err != nil {
		return err
	}
	if !readTime(&data, &r.producedAt) || !data.ReadASN1(&responses, cbasn1.SEQUENCE) {
		return malformed("producedAt or responses")
	}
	for !responses.Empty() {
		single, err := readSingle(&responses)
		if err != nil {
			return err
		}
		r.singles = append(r.singles, single)
	}
	var ok bool
	if r.critical, ok = readExtensions(&data); !ok || !data.Empty() {
		return malformed("responseExtensions")
	}
	return nil
}

func (r *basicResponse) readResponder(data *cryptobyte.String) error {
	var id, inner cryptobyte.String
	switch {
	case data.PeekASN1Tag(tag(1)):
		if !data.ReadASN1(&id, tag(1)) || !id.ReadASN1Element(&inner, cbasn1.SEQUENCE) || !id.Empty() {
			return malformed("responderID")
		}
		r.responderName = inner
	case data.PeekASN1Tag(tag(2)):
		if !data.ReadASN1(&id, tag(2)) || !id.ReadASN1(&inner, cbasn1.OCTET_STRING) || !id.Empty() {
			return malformed("responderID")
		}
		r.responderKey = inner
	default:
		return malformed("responderID")
	}
	return nil
}

func readSingle(list *cryptobyte.String) (singleResponse, error) {
	var input cryptobyte.String
	s := singleResponse{reason: -1}
	if !list.ReadASN1(&input, cbasn1.SEQUENCE) || !s.readCertID(&input) {
		return s, malformed("CertID")
	}
	if !s.readStatus(&input) {
		return s, malformed("certStatus")
	}
	if !readTime(&input, &s.thisUpdate) {
		return s, malformed("thisUpdate")
	}
	var next cryptobyte.String
	var present, ok bool
	if !input.ReadOptionalASN1(&next, &present, tag(0)) ||
		present && (!readTime(&next, &s.nextUpdate) || !next.Empty()) {
		return s, malformed("nextUpdate")
	}
	if s.critical, ok = readExtensions(&input); !ok || !input.Empty() {
		return s, malformed("singleExtensions")
	}
	return s, nil
}

func (s *singleResponse) readCertID(input *cryptobyte.String) bool {
	var id, algorithm, nameHash, keyHash cryptobyte.String
	var oid asn1.ObjectIdentifier
	s.serial = new(big.Int)
	if !input.ReadASN1(&id, cbasn1.SEQUENCE) ||
		!id.ReadASN1(&algorithm, cbasn1.SEQUENCE) || !algorithm.ReadASN1ObjectIdentifier(&oid) ||
		!skipNull(&algorithm) ||
		!id.ReadASN1(&nameHash, cbasn1.OCTET_STRING) ||
		!id.ReadASN1(&keyHash, cbasn1.OCTET_STRING) ||
		!id.ReadASN1Integer(s.serial) || !id.Empty() {
		return false
	}
	s.hash, s.nameHash, s.keyHash = hashByOID(oid), nameHash, keyHash
	return true
}

// skipNull reads the optional NULL that parameterless algorithms carry.
func skipNull(s *cryptobyte.String) bool {
	if s.Empty() {
		return true
	}
	var null cryptobyte.String
	return s.ReadASN1(&null, cbasn1.NULL) && null.Empty() && s.Empty()
}

func (s *singleResponse) readStatus(input *cryptobyte.String) bool {
	var body cryptobyte.String
	var t cbasn1.Tag
	if !input.ReadAnyASN1(&body, &t) {
		return false
	}
	switch t {
	case cbasn1.Tag(0).ContextSpecific():
		s.status = Good
		return body.Empty()
	case cbasn1.Tag(2).ContextSpecific():
		s.status = Unknown
		return body.Empty()
	case tag(1):
		s.status = Revoked
		return s.readRevokedInfo(body)
	}
	return false
}

func (s *singleResponse) readRevokedInfo(info cryptobyte.String) bool {
	var reason cryptobyte.String
	var present bool
	if !readTime(&info, &s.revokedAt) || !info.ReadOptionalASN1(&reason, &present, tag(0)) || !info.Empty() {
		return false
	}
	return !present || reason.ReadASN1Enum(&s.reason) && reason.Empty()
}

// readExtensions reads an optional [1] EXPLICIT Extensions and returns the
// identifier of the first critical one, if any.
func readExtensions(input *cryptobyte.String) (critical asn1.ObjectIdentifier, ok bool) {
	var wrapped, list cryptobyte.String
	var present bool
	if !input.ReadOptionalASN1(&wrapped, &present, tag(1)) {
		return nil, false
	}
	if !present {
		return nil, true
	}
	if !wrapped.ReadASN1(&list, cbasn1.SEQUENCE) || !wrapped.Empty() {
		return nil, false
	}
	for !list.Empty() {
		var ext, value cryptobyte.String
		var oid asn1.ObjectIdentifier
		var isCritical bool
		if !list.ReadASN1(&ext, cbasn1.SEQUENCE) || !ext.ReadASN1ObjectIdentifier(&oid) ||
			ext.PeekASN1Tag(cbasn1.BOOLEAN) && !ext.ReadASN1Boolean(&isCritical) ||
			!ext.ReadASN1(&value, cbasn1.OCTET_STRING) || !ext.Empty() {
			return nil, false
		}
		if isCritical && critical == nil {
			critical = oid
		}
	}
	return critical, true
}

// readTime reads a GeneralizedTime. cryptobyte demands the form of RFC 5280,
// section 4.1.2.5.2: seconds, no fraction, Z.
func readTime(s *cryptobyte.String, t *time.Time) bool {
	if !s.ReadASN1GeneralizedTime(t) {
		return false
	}
	*t = t.UTC()
	return true
}

func tag(n uint8) cbasn1.Tag { return cbasn1.Tag(n).ContextSpecific().Constructed() }

func malformed(where string) error { return refuse(ReasonMalformed, "no valid DER at %s", where) }

func unsuccessful(status int) error {
	reasons := map[int]Reason{
		1: ReasonMalformedRequest, 2: ReasonInternalError, 3: ReasonTryLater, 5: ReasonSigRequired, 6: ReasonUnauthorized,
	}
	if r, ok := reasons[status]; ok {
		return refuse(r, "")
	}
	return refuse(ReasonBadStatus, "status %d", status)
}
