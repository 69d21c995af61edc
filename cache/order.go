package cache

// Slots that hold no entry.
const (
	used      = 0 // the ring of entries: next is the most recently used, prev the least
	unused    = 1 // the ring of free slots
	firstSlot = 2
)

// stampBits sets the unit of a node's stamp: 2^24 ns, about 17 ms. A stamp then
// goes round in more than two years.
const stampBits = 24

// A node links a slot into one of two rings. Moving an entry in the order of use
// touches three nodes: they are kept small, so that they lie close together.
type node struct {
	prev, next uint32
	stamp      uint32 // when the entry was last put, or returned by Get
	hash       uint32 // what the index knows its key by
}

// order holds the rings, by slot number.
type order struct {
	nodes pages[node]
}

func (o *order) init() {
	*o = order{}
	o.nodes.grow(firstSlot, node{})
	*o.nodes.at(used) = node{prev: used, next: used}
	*o.nodes.at(unused) = node{prev: unused, next: unused}
}

// first returns the first slot of a ring, or the ring itself if it is empty.
func (o *order) first(ring uint32) uint32 { return o.nodes.at(ring).next }

// last returns the last slot of a ring, or the ring itself if it is empty.
func (o *order) last(ring uint32) uint32 { return o.nodes.at(ring).prev }

// push makes slot i the first of a ring.
func (o *order) push(ring, i uint32) {
	head := o.nodes.at(ring)
	n := o.nodes.at(i)
	n.prev, n.next = ring, head.next
	o.nodes.at(head.next).prev = i
	head.next = i
}

// drop takes slot i out of its ring.
func (o *order) drop(i uint32) {
	n := o.nodes.at(i)
	o.nodes.at(n.prev).next = n.next
	o.nodes.at(n.next).prev = n.prev
}

// touch makes slot i the first of the ring of entries.
func (o *order) touch(i uint32) {
	if o.nodes.at(used).next == i {
		return
	}
	o.drop(i)
	o.push(used, i)
}

// move puts slot to, which is in no ring, where slot from was.
func (o *order) move(from, to uint32) {
	n := *o.nodes.at(from)
	*o.nodes.at(to) = n
	o.nodes.at(n.prev).next = to
	o.nodes.at(n.next).prev = to
}
