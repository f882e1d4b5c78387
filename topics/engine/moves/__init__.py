"""Topics that move to other cores when a data directory gets another number of them."""
