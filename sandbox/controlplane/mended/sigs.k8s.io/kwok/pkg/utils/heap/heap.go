// Package heap takes the place of kwok's package of this name when the sandbox is built.
//
// kwok's own keeps an item that is pushed twice as two entries, of which it can find only the second. Once that is
// gone, the first stays at the top for ever and holds back everything below it. A node that is switched off and on
// while kwok renews its lease is pushed twice: from then on no node's lease was renewed. Here a second push moves the
// item.
package heap

import (
	"cmp"
	"container/heap"
)

// Heap holds each item once, the one with the smallest key on top.
type Heap[K cmp.Ordered, T comparable] struct {
	order  order[K, T]
	places map[T]*place[K, T]
}

// NewHeap makes an empty heap.
func NewHeap[K cmp.Ordered, T comparable]() *Heap[K, T] {
	return &Heap[K, T]{places: map[T]*place[K, T]{}}
}

// Push puts an item in, or moves it if it is there.
func (h *Heap[K, T]) Push(key K, item T) {
	if known, found := h.places[item]; found {
		known.key = key
		heap.Fix(&h.order, known.index)
		return
	}
	added := &place[K, T]{key: key, item: item}
	h.places[item] = added
	heap.Push(&h.order, added)
}

// Pop takes the item on top.
func (h *Heap[K, T]) Pop() (key K, item T, found bool) {
	key, item, found = h.Peek()
	h.Remove(item)
	return key, item, found
}

// Peek tells the item on top and leaves it there.
func (h *Heap[K, T]) Peek() (key K, item T, found bool) {
	if len(h.order) == 0 {
		return key, item, false
	}
	return h.order[0].key, h.order[0].item, true
}

// Remove takes an item out, wherever it is; it tells whether it was there.
func (h *Heap[K, T]) Remove(item T) bool {
	known, found := h.places[item]
	if found {
		heap.Remove(&h.order, known.index)
		delete(h.places, item)
	}
	return found
}

// Len tells how many items there are.
func (h *Heap[K, T]) Len() int {
	return len(h.order)
}

type place[K cmp.Ordered, T comparable] struct {
	key   K
	item  T
	index int
}

// order is what container/heap works on; every place knows its index in it.
type order[K cmp.Ordered, T comparable] []*place[K, T]

func (o order[K, T]) Len() int           { return len(o) }
func (o order[K, T]) Less(i, j int) bool { return o[i].key < o[j].key }

func (o order[K, T]) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].index, o[j].index = i, j
}

func (o *order[K, T]) Push(added any) {
	known := added.(*place[K, T])
	known.index = len(*o)
	*o = append(*o, known)
}

func (o *order[K, T]) Pop() any {
	last := len(*o) - 1
	taken := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	return taken
}
