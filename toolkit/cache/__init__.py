"""Where keys and values live. Knows tensors and contexts, no model."""

from toolkit.cache.fill import fill as fill
from toolkit.cache.slab import Slab as Slab
from toolkit.cache.store import LayerSpec as LayerSpec
from toolkit.cache.store import Store as Store
