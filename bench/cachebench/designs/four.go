package designs

type fullScan[K comparable] struct{ base[K] }

func (c *fullScan[K]) Put(k K) {
	now := c.now()
	c.add(k, now)
	if c.order.Len() > c.capacity {
		c.scan(now)
		c.shrink()
	}
}

type frontOnly[K comparable] struct{ base[K] }

func (c *frontOnly[K]) Put(k K) {
	now := c.now()
	c.add(k, now)
	c.expungeFront(now)
	c.shrink()
}

type insertionOrder[K comparable] struct{ base[K] }

func (c *insertionOrder[K]) Get(k K) bool { return c.live(k) != nil }

func (c *insertionOrder[K]) Put(k K) {
	now := c.now()
	c.add(k, now)
	c.expungeFront(now)
	c.shrink()
}

type flatSkip[K comparable] struct {
	base[K]
	earliest int64 // no entry expires before it
}

func (c *flatSkip[K]) Put(k K) {
	now := c.now()
	if c.order.Len() == 0 {
		c.earliest = now + c.lifetime
	}
	c.add(k, now)
	if c.order.Len() > c.capacity {
		if now >= c.earliest {
			c.earliest = c.scan(now)
		}
		c.shrink()
	}
}
