package ocsp

import (
	"cmp"
	"slices"
	"time"
)

// receipt is a response that was kept, and when it came from its responder.
type receipt struct {
	response *Response
	received time.Time
}

// receipts are what is kept about one certificate.
type receipts []receipt

// sorted returns them in the order in which they are to be taken over: what
// counts comes first, so that nothing else is in use for a moment, and then
// keeps the others out. Of the same age, they stay in their order.
func (k receipts) sorted() receipts {
	rank := func(r *Response) int {
		if r.final() {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(k, func(a, b receipt) int {
		x, y := a.response, b.response
		return cmp.Or(cmp.Compare(rank(x), rank(y)), y.ThisUpdate.Compare(x.ThisUpdate))
	})
	return k
}
