"""Where keys and values live. Knows tensors and contexts, no model."""

from toolkit.cache.accounts import Accounts as Accounts
from toolkit.cache.fill import fill as fill
from toolkit.cache.layout import LayerSpec as LayerSpec
from toolkit.cache.layout import Layout as Layout
from toolkit.cache.paged import Paged as Paged
from toolkit.cache.pool import NoPages as NoPages
from toolkit.cache.slab import Slab as Slab
from toolkit.cache.store import Store as Store
from toolkit.protocols import Paging


def layout_for(paging: Paging | None) -> Layout:
    """Pages, or for None the plain layout."""
    return Slab() if paging is None else Paged(paging.size, paging.count, paging.shared)
