package certs

import (
	"fmt"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// What deriving a key from a passphrase may cost. Files say it themselves, and
// a damaged one must not keep the program busy for hours or eat its memory.
const (
	maxIterations = 10_000_000 // of PBKDF2 and PKCS#12's own function: some seconds
	maxScrypt     = 1 << 21    // cost × block size of scrypt, in blocks of 128 bytes: 256 MiB
)

// checkKDF looks for parameters of key derivation in a DER structure and
// refuses excessive ones. They are where an OCTET STRING, the salt, is
// followed by INTEGERs: one or two for PBKDF2 (RFC 8018, appendix A.2) and
// PKCS#12 (RFC 7292, section 4 and appendix B), three for scrypt (RFC 7914,
// section 7).
func checkKDF(der []byte, iterations uint64) error {
	return walkKDF(cryptobyte.String(der), iterations, 0)
}

func walkKDF(s cryptobyte.String, iterations uint64, depth int) error {
	if depth > 32 {
		return nil // no structure that a parser accepts is as deep
	}
	var afterSalt bool
	var numbers []uint64
	check := func() error {
		err := checkNumbers(numbers, iterations)
		numbers = numbers[:0]
		return err
	}
	for !s.Empty() {
		var body cryptobyte.String
		var tag asn1.Tag
		if !s.ReadAnyASN1(&body, &tag) {
			break // the parser will say what is wrong
		}
		if tag == asn1.INTEGER && afterSalt {
			numbers = append(numbers, clampedUint(body))
			continue
		}
		if err := check(); err != nil {
			return err
		}
		afterSalt = tag == asn1.OCTET_STRING
		// Constructed values, and what may lie inside an OCTET STRING.
		if tag&0x20 != 0 || afterSalt {
			if err := walkKDF(body, iterations, depth+1); err != nil {
				return err
			}
		}
	}
	return check()
}

func checkNumbers(n []uint64, iterations uint64) error {
	switch {
	case len(n) >= 3 && n[0] > 0 && n[1] > 0 && (n[0] > maxScrypt || n[1] > maxScrypt/n[0] || n[2] > 64):
		return fmt.Errorf("deriving the key by scrypt with cost %d, block size %d and parallelization %d would take too much memory", n[0], n[1], n[2])
	case len(n) > 0 && n[0] > iterations:
		return fmt.Errorf("deriving the key would take %d iterations: at most %d are allowed", n[0], iterations)
	}
	return nil
}

// clampedUint is the value of an INTEGER's body, the largest number if it does
// not fit.
func clampedUint(body []byte) uint64 {
	var n uint64
	for _, b := range body {
		if n>>56 != 0 {
			return ^uint64(0)
		}
		n = n<<8 | uint64(b)
	}
	return n
}
