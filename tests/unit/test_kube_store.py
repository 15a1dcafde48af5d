"""A store: found by index, never back in time, equal to the listing after a resync."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hostler.kube.records import Pod, PodMetadata, PodSpec
from hostler.kube.store import Store


def pod(name: str, version: int, node: str = "n1") -> Pod:
    metadata = PodMetadata(name=name, namespace="a", resource_version=str(version))
    return Pod(metadata=metadata, spec=PodSpec(node_name=node))


def by_node() -> Store[Pod]:
    return Store({"node": lambda p: (p.spec.node_name,)})


def synced(*pods: Pod, version: int) -> Store[Pod]:
    store = by_node()
    store.begin_sync()
    for one in pods:
        store.put(one)
    assert store.end_sync(version)
    return store


def held(store: Store[Pod]) -> dict[str, int]:
    return {f"a/{one.metadata.name}": int(one.metadata.resource_version) for one in store}


def test_a_moved_pod_is_found_only_on_its_new_node() -> None:
    store = synced(pod("p", 1), version=1)
    store.put(pod("p", 2, "n2"))
    assert store.by("node", "n1") == []
    assert [p.metadata.name for p in store.by("node", "n2")] == ["p"]
    assert store.keys_by("node", "n2") == {"a/p"}


def test_an_older_event_does_not_undo_a_newer_record() -> None:
    store = synced(pod("p", 5, "n2"), version=5)
    store.put(pod("p", 4, "n1"))
    assert store.by("node", "n2")
    store.remove(pod("p", 4))
    assert store.get("a/p") is not None


def test_our_own_write_shows_at_once_and_the_late_watch_event_changes_nothing() -> None:
    store = synced(pod("p", 5), version=5)
    store.overlay(pod("p", 7, "n2"))
    store.put(pod("p", 6, "n1"))
    record = store.get("a/p")
    assert record is not None
    assert record.spec.node_name == "n2"


def test_a_late_answer_to_our_write_does_not_bring_a_deleted_object_back() -> None:
    store = synced(pod("p", 5), version=5)
    store.remove(pod("p", 8))
    store.overlay(pod("p", 7))
    assert store.get("a/p") is None


def test_a_resync_drops_what_the_listing_did_not_name() -> None:
    store = synced(pod("gone", 1), pod("kept", 2), version=2)
    told: list[tuple[str, bool]] = []
    store.listen(lambda key, _old, new: told.append((key, new is None)))
    store.begin_sync()
    store.put(pod("kept", 2))
    store.put(pod("new", 9))
    assert store.end_sync(10)
    assert sorted(store.keys()) == ["a/kept", "a/new"]
    assert told == [("a/new", False), ("a/gone", True)]


def test_a_restored_etcd_is_noticed_and_its_listing_wins_whatever_its_versions() -> None:
    store = synced(pod("p", 90, "n9"), pod("q", 95), version=100)
    store.begin_sync()
    store.put(pod("p", 40, "n4"))
    assert not store.end_sync(50)
    store.begin_sync()
    store.put(pod("p", 40, "n4"))
    assert store.end_sync(50)
    assert list(store.keys()) == ["a/p"]
    assert store.by("node", "n4")


def test_a_restored_etcd_that_has_grown_past_us_is_believed_too() -> None:
    """Its version says nothing, but it shows older what it should show newer. Our own late write stays."""
    store = synced(pod("p", 90, "n9"), pod("q", 95), version=100)
    store.overlay(pod("r", 130, "n3"))
    store.begin_sync()
    store.put(pod("p", 40, "n4"))
    store.put(pod("q", 95))
    store.put(pod("r", 101, "n1"))
    assert store.end_sync(120)
    assert held(store) == {"a/p": 40, "a/q": 95, "a/r": 130}
    assert store.by("node", "n4")
    assert not store.by("node", "n9")


def test_what_is_deleted_while_it_is_being_listed_is_gone() -> None:
    store = synced(pod("p", 90, "n9"), pod("q", 95), version=100)
    for rewound in (True, False):
        store.begin_sync()
        store.put(pod("p", 40, "n4"))
        store.remove(pod("p", 45))
        assert store.end_sync(50) is not rewound
    assert len(store) == 0


@given(
    st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from(["put", "late", "remove", "unread"])), max_size=12),
    st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from(["put", "remove", "unread"])), max_size=12),
)
def test_a_listing_always_ends_with_what_it_showed_last(
    before: list[tuple[str, str]], listed: list[tuple[str, str]]
) -> None:
    """Whatever was there before; the listing itself is one history, in order, and later than all of it."""
    store, version = by_node(), 100
    for name, what in before:
        version += 1
        _take(store, name, what, version)
    version += 1
    store.begin_sync()
    last: dict[str, int | None] = {}
    for name, what in listed:
        version += 1
        _take(store, name, what, version)
        last[f"a/{name}"] = version if what == "put" else None
    assert store.end_sync(version)
    assert held(store) == {key: version for key, version in last.items() if version is not None}


def _take(store: Store[Pod], name: str, what: str, version: int) -> None:
    match what:
        case "put":
            store.put(pod(name, version))
        case "late":
            store.overlay(pod(name, version - 3))
        case "remove":
            store.remove(pod(name, version))
        case "unread":
            store.saw(f"a/{name}")
            store.unread(f"a/{name}", version, "no")


def test_an_object_that_cannot_be_read_is_neither_present_nor_forgotten() -> None:
    store = synced(pod("p", 1), version=1)
    store.unread("a/p", 2, "Expected `str`")
    assert store.get("a/p") is None
    assert store.unreadable == {"a/p": "Expected `str`"}
    store.put(pod("p", 3))
    assert store.get("a/p") is not None
    assert not store.unreadable


@given(
    st.lists(
        st.tuples(st.sampled_from("pqrs"), st.sampled_from(["n1", "n2", "n3"]), st.booleans(), st.booleans()),
        max_size=40,
    )
)
def test_the_index_always_equals_a_scan(steps: list[tuple[str, str, bool, bool]]) -> None:
    store = by_node()
    for version, (name, node, delete, late) in enumerate(steps, start=10):
        record = pod(name, version - 5 if late else version, node)
        if delete:
            store.remove(record)
        else:
            store.put(record)
    for node in ("n1", "n2", "n3"):
        scan = {f"a/{p.metadata.name}" for p in store.values() if p.spec.node_name == node}
        assert store.keys_by("node", node) == scan
