package cache

// The arrays of a shard grow by pages, so that a large capacity costs nothing
// before it is used and growing never copies more than the first page.
const (
	pageBits  = 10
	pageSize  = 1 << pageBits
	pageMask  = pageSize - 1
	firstPage = 16 // what the first page starts with; it doubles up to pageSize
)

// pages is an array that grows and shrinks at its end. All pages but the first
// hold pageSize elements; the first holds a power of two from firstPage on while
// it is the only one.
type pages[T any] struct {
	pages [][]T
}

// at returns element i, which must lie within the room made by grow.
func (p *pages[T]) at(i uint32) *T {
	return &p.pages[i>>pageBits][i&pageMask]
}

// group returns elements fanOut*g to fanOut*g+fanOut-1. A group never spans pages.
func (p *pages[T]) group(g uint32) *[fanOut]T {
	i := g * fanOut
	return (*[fanOut]T)(p.pages[i>>pageBits][i&pageMask:])
}

// room returns the number of elements there is room for.
func (p *pages[T]) room() uint32 {
	switch n := len(p.pages); n {
	case 0:
		return 0
	case 1:
		return uint32(len(p.pages[0]))
	default:
		return uint32(n) << pageBits
	}
}

// grow makes room for n elements, the new ones being fill.
func (p *pages[T]) grow(n uint32, fill T) {
	for room := p.room(); room < n; {
		var page []T
		if room >= pageSize {
			page = make([]T, pageSize)
			p.pages = append(p.pages, page)
		} else {
			page = make([]T, max(firstPage, 2*room))
			if room == 0 {
				p.pages = append(p.pages, page)
			} else {
				copy(page, p.pages[0])
				clear(p.pages[0]) // what it held may be secret
				p.pages[0] = page
				page = page[room:]
			}
		}
		for i := range page {
			page[i] = fill
		}
		room = p.room()
	}
}

// clear overwrites all elements.
func (p *pages[T]) clear() {
	for _, page := range p.pages {
		clear(page)
	}
}

// shrink drops the pages that lie wholly at or past element n, and halves the
// first page as far as n allows.
func (p *pages[T]) shrink(n uint32) {
	keep := int((uint64(n) + pageMask) >> pageBits)
	if keep < len(p.pages) {
		clear(p.pages[keep:])
		p.pages = p.pages[:keep]
	}
	if cap(p.pages) > 4*keep+16 {
		p.pages = append(make([][]T, 0, keep), p.pages...)
	}
	if keep != 1 || len(p.pages) == 0 {
		return
	}
	size := len(p.pages[0])
	for size > firstPage && uint32(size)/2 >= n {
		size /= 2
	}
	if old := p.pages[0]; size < len(old) {
		p.pages[0] = append(make([]T, 0, size), old[:size]...)
		clear(old)
	}
}
