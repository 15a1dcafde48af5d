"""What to do with one host. Pure: the same call serves the operator, dry runs, explain and the tests.

Nothing is begun, removed or forgotten on a fact that is not known; safe to repeat at any point; state is on the Agent.
"""

from __future__ import annotations

from dataclasses import replace

from hostler.drain.model import Decision as Drain
from hostler.drain.model import State as Emptying
from hostler.host.facts import Known, Unknown
from hostler.instant import Instant
from hostler.reclaim import model
from hostler.reclaim.agent_manifests import is_deployed
from hostler.reclaim.cleanup import clean_up, clean_up_discovered, has_remains
from hostler.reclaim.decision import (
    Action,
    AddFinalizer,
    AnswerRetry,
    ClearCancel,
    Decision,
    Deploy,
    Enter,
    Evict,
    Hold,
    NoteCluster,
    NotKnown,
    Refused,
    SetCondition,
    Waits,
    WarnNotOneShot,
)
from hostler.reclaim.model import (
    IN_A_CLUSTER,
    UNDER_WAY,
    Cause,
    Cluster,
    Host,
    Policy,
    Reason,
    SpokeNode,
    State,
    Transition,
    find_called_off,
    is_pinned,
    is_unbound,
    pin_node,
    stage_key,
    step_id,
)
from hostler.reclaim.quoting import is_name, quote_text
from hostler.reclaim.rules import accepted_risks, check_trust, may_reclaim

LOOK_AGAIN = 30.0  # seconds until it is looked again whether the workers of a cluster are gone
CALLED_OFF = "Its restart was called off; its agent was told to end and to take the discovery entry back."
UNDECIDED = (Reason.DECIDING, Reason.WORKERS_FIRST)


def decide(host: Host, policy: Policy, now: Instant) -> Decision:
    """Move one host one step on its way back to discovery, or say why it stays."""
    if host.deleted:
        return clean_up(host, "The Agent is deleted.", ()) if host.kept else Decision((), "The Agent is deleted.")
    may_register = host.state in model.REGISTER.sources or is_unbound(host.state)
    if may_register and host.registration == stage_key(host.state, host.stage):
        return _enter(model.REGISTER, Reason.REGISTERED, "The host is in discovery again.")
    if host.cancelled and (host.state not in (*IN_A_CLUSTER, *UNDER_WAY) or _in_its_cluster(host)):
        return Decision((ClearCancel(),), "The request to cancel was carried out; it does not stop another attempt.")
    match host.state:
        case State.INSTALLED | State.ADDED:
            return _decide_in_cluster(host, policy, now)
        case State.RECLAIMING:
            return _decide_reclaiming(host, policy, now)
        case State.REBOOTING:
            return _decide_rebooting(host, policy, now)
        case State.PENDING:
            return _decide_pending(host, policy, now)
        case state if is_unbound(state):
            return clean_up_discovered(host, policy)
        case _:
            return Decision((), f"Reclaim does not return a host that is {host.state or 'without a state'}.")


def _in_its_cluster(host: Host) -> bool:
    return host.state in IN_A_CLUSTER and host.bound is not None


def _decide_in_cluster(host: Host, policy: Policy, now: Instant) -> Decision:
    if host.bound is not None:
        return _decide_bound(host)
    return _decide_unbound(host, policy, now, model.RECLAIM, model.UNBIND)


def _decide_bound(host: Host) -> Decision:
    """An unbind is decided from what is kept here, never from memory: so it is kept while it can be known."""
    assert host.bound is not None
    if not host.hostname:
        return Decision((), "It is in its cluster; its hostname is not known yet.")
    cluster = Cluster(host.bound[0], host.bound[1], host.hostname)
    if not all(map(is_name, (cluster.namespace, cluster.name, cluster.node))):
        return Decision((), "Its binding or its hostname is not a name that an object can have; nothing is noted.")
    noted = f"It is in its cluster {cluster.namespace}/{cluster.name}, which is noted."
    if host.previous is None:
        return Decision((NoteCluster(cluster),), noted)
    if host.reason == Reason.REGISTERED:  # it was in discovery since, so it was installed again
        return clean_up(host, noted, (NoteCluster(cluster),)) if host.kept else Decision((NoteCluster(cluster),), noted)
    if host.previous != cluster:
        # Who may edit the Agent's spec must not choose which machine is restarted.
        message = (
            f"The Agent is bound to {cluster.namespace}/{cluster.name} as {cluster.node}, but was installed as "
            f"{host.previous.node} in {host.previous.namespace}/{host.previous.name} and was not in discovery since. "
            "It cannot be returned from there until its spec says that again, or status.deprovision_info is cleared."
        )
        return Decision((SetCondition(Reason.NOTE_NOT_CONFIRMED, message),), message)
    if host.reason == Reason.NOTE_NOT_CONFIRMED:
        return Decision((NoteCluster(cluster),), noted)
    again = host.reason == Reason.CANCELLED
    if again or host.kept:
        done = SetCondition(Reason.REBOUND, "It was bound to its cluster again before it was restarted.")
        return clean_up(host, "It is in its cluster again.", (done,) if again else ())
    return Decision((), "It is in its cluster.")


def _decide_unbound(host: Host, policy: Policy, now: Instant, go: Transition, stay: Transition | None) -> Decision:
    """Reclaim, or leave it to people with the reason. `stay` is None where it is left to people already."""
    try:
        node = may_reclaim(host, policy)
    except Refused as refused:
        return _refuse(refused.reason, refused.message, stay)
    except NotKnown as unknown:
        since = host.waiting_since if host.waiting_since is not None else now
        if now - since >= policy.patience:
            message = f"{unknown.sentence}. Hostler waited {policy.patience / 60:.0f} minutes for it."
            return _refuse(Reason.SPOKE_UNREACHABLE, message, stay)
        message = f"Cannot tell yet whether the host can be returned to discovery: {unknown}."
        return Decision((SetCondition(Reason.DECIDING, message),), message, since + policy.patience)
    except Waits as waits:
        return Decision((SetCondition(Reason.WORKERS_FIRST, str(waits)),), str(waits), now + LOOK_AGAIN)
    message = f"The agent is put on node {node.name} and downloads the discovery image.{accepted_risks(host)}"
    return _enter(go, Reason.RECLAIMING, message)


def _refuse(reason: Reason, message: str, stay: Transition | None) -> Decision:
    if stay is not None:
        return _enter(stay, reason, message)
    return Decision((SetCondition(reason, message),), message)


def _decide_reclaiming(host: Host, policy: Policy, now: Instant) -> Decision:
    if host.bound is not None:
        if _bound_again(host):
            return _enter(model.REBIND, Reason.CANCELLED, "It was bound to its cluster again.")
        return _enter(model.CANCEL, Reason.CANCELLED, "It was bound to another cluster while it was being returned.")
    if host.cancelled:
        return _enter(model.CANCEL, Reason.CANCELLED, "It was cancelled by annotation; the host was not restarted.")
    try:
        check_trust(host, policy)  # an earlier version may have begun it, and who writes its objects may change them
    except Refused as refused:
        return _enter(model.FAIL, refused.reason, refused.message)
    except NotKnown as unknown:
        text = f"Cannot tell whether the reclaim may go on: {unknown}."
        return _time_out(host, policy.reclaiming, now) or Decision((), text, _deadline(host, policy.reclaiming))
    if (ended := _report_of_stage(host)) is not None:
        if ended.exit_code != 0:
            return _fail(ended)
        message = f"The discovery image is on the host; it is restarted into it. {_quote_report(ended)}".rstrip()
        restart = _enter(model.REBOOT, Reason.REBOOTING, message)
        if not ended.lasts:
            return restart
        warning = (
            "Every boot of this host starts discovery from now on, until it is installed again; its agent says why: "
            f"{quote_text(ended.lasts)}. HOSTLER_RECLAIM_REQUIRE_ONE_SHOT=true refuses such hosts."
        )
        return replace(restart, actions=(*restart.actions, WarnNotOneShot(warning)))
    if (late := _time_out(host, policy.reclaiming, now)) is not None:
        return late
    # A request for another attempt is answered by there being one.
    answered: tuple[Action, ...] = (AnswerRetry(host.retry),) if host.retry != host.retried else ()
    match host.spoke.node:
        case Known(SpokeNode() as node):
            if (first := _prepare_node(host, policy, node)) is not None:
                return replace(first, actions=(*first.actions, *answered))
            why = f"The agent on {node.name} is at work."
            return Decision((Deploy(node), *answered), why, _deadline(host, policy.reclaiming))
        case Known(None):
            return _enter(model.FAIL, Reason.NODE_NOT_FOUND, "The node is gone from its cluster.")
        case Unknown(why):
            return Decision(answered, f"Cannot read the node: {why}", _deadline(host, policy.reclaiming))
    raise AssertionError("a fact is Known or Unknown")


def _prepare_node(host: Host, policy: Policy, node: SpokeNode) -> Decision | None:
    """What comes before the agent: the rules once more, the finalizer with the node's boot, an empty node.

    None: it can be put there, or is there. A node that was replaced or restarted since is not the one decided on.
    """
    pinned = is_pinned(host)
    if not pinned or (policy.drain is not None and not is_deployed(host.spoke.remains, node.name)):
        try:
            may_reclaim(host, policy)
        except Refused as refused:
            return _enter(model.FAIL, refused.reason, refused.message)
        except Waits:
            pass  # workers that were unbound after this began do not stop it
        except NotKnown as unknown:
            text = f"Cannot tell whether the host can still be returned: {unknown}."
            return Decision((), text, _deadline(host, policy.reclaiming))
    now = pin_node(host.stage, node)
    if not pinned:
        return Decision((AddFinalizer(now),), "The Agent is kept until nothing of it is left in its old cluster.")
    if not node.boot_id and host.pinned is not None and host.pinned.uid == node.uid:
        text = f"Node {node.name} does not report its boot id, so Hostler cannot tell whether it was restarted."
        return Decision((), text, _deadline(host, policy.reclaiming))
    if host.pinned != now:
        message = f"Node {node.name} was replaced or restarted since this began, so it was not touched; try again."
        return _enter(model.FAIL, Reason.ANOTHER_MACHINE, message)
    return _empty_node(host, policy, node)


def _empty_node(host: Host, policy: Policy, node: SpokeNode) -> Decision | None:
    """Empty the node first, where a setting asks for it; None: it is empty, or no setting asks for it.

    Once the agent is there it is not gone back on: the drain was over then.
    """
    if policy.drain is None or is_deployed(host.spoke.remains, node.name):
        return None
    until = _deadline(host, policy.reclaiming)
    if not node.held:
        return Decision(
            (Hold(node),), f"Node {node.name} is cordoned, to be emptied before the host is restarted.", until
        )
    drain = host.spoke.drain
    if drain is None or drain.state is Emptying.UNKNOWN:
        return Decision((), f"Cannot read the pods of {node.name}.{_quote_drain(drain)}", until)
    if drain.state is Emptying.DRAINED:
        return None
    if drain.over:
        return _enter(model.FAIL, Reason.DRAIN_FAILED, f"Node {node.name} was not emptied.{_quote_drain(drain)}")
    wakes = [moment for moment in (drain.wake, until) if moment is not None]
    why = f"Node {node.name} is being emptied.{_quote_drain(drain)}"
    return Decision((Evict(drain.actions),) if drain.actions else (), why, min(wakes, default=None))


def _quote_drain(drain: Drain | None) -> str:
    """How the drain stands. It names pods and budgets of that cluster, so it is quoted."""
    return f" Its drain: {quote_text(drain.why)}" if drain is not None else ""


def _bound_again(host: Host) -> bool:
    return host.previous is not None and host.bound == (host.previous.namespace, host.previous.name)


def _decide_rebooting(host: Host, policy: Policy, now: Instant) -> Decision:
    if (ended := _report_of_stage(host)) is not None and ended.exit_code != 0:
        if ended.reason == Reason.CANCELLED and _bound_again(host):  # its agent asked, and was told to end instead
            return _enter(model.REBIND, Reason.CANCELLED, CALLED_OFF)
        return _fail(ended)
    if (late := _time_out(host, policy.rebooting, now)) is not None:
        return late
    wake = _deadline(host, policy.rebooting)
    too_late = ""
    if find_called_off(host) is not None:
        too_late = " Its agent is told to end if it asks; if it has asked, it is too late to cancel."
    elif host.cancelled or host.bound is not None:
        too_late = " It goes down already; it is too late to cancel."
    # The agent stays as it is until the host has registered: only it can say that the host came back to its old
    # system, and it knows by the boot id in its pod spec.
    return Decision((), f"The host restarts into discovery.{too_late}", wake)


def _decide_pending(host: Host, policy: Policy, now: Instant) -> Decision:
    asked = host.retry and host.retry != host.retried and host.bound is None and host.previous is not None
    # What the last attempt left goes first: its token may be old, and its agent has ended.
    if asked and not has_remains(host):
        again = _decide_unbound(host, policy, now, model.RETRY, None)
        waits = any(isinstance(action, SetCondition) and action.reason in UNDECIDED for action in again.actions)
        answered: tuple[Action, ...] = () if waits else (AnswerRetry(host.retry),)
        return Decision((*again.actions, *answered), again.why, again.wake)
    return clean_up(host, "It waits for a person to boot it into discovery.", ())


def _report_of_stage(host: Host) -> model.Report | None:
    """The answer to the step of this stage; an answer to another stage's step is not one."""
    if host.report is None or host.report.step_id != step_id(host.uid, host.state, host.stage):
        return None
    return host.report


def _quote_report(ended: model.Report) -> str:
    """The agent's own sentence. It came from a node, so it is quoted and never taken for ours."""
    return f"Its agent reports: {quote_text(ended.message)}" if ended.message else ""


def _fail(ended: model.Report) -> Decision:
    if ended.reason == Reason.CANCELLED:
        return _enter(model.FAIL, Reason.CANCELLED, CALLED_OFF)
    message = _quote_report(ended) or "Its agent reports a failure without a reason."
    return _enter(model.FAIL, ended.reason or Reason.STEP_FAILED, message)


def _time_out(host: Host, seconds: float, now: Instant) -> Decision | None:
    # A start that cannot be read would be a state without an end: it counts as over.
    if host.since is not None and now - host.since < seconds:
        return None
    message = f"It was {host.state} for more than {seconds / 60:.0f} minutes; boot it into discovery by hand, or retry."
    return _enter(model.TIMEOUT, Reason.TIMED_OUT, message)


def _deadline(host: Host, seconds: float) -> Instant | None:
    return None if host.since is None else host.since + seconds


def _enter(transition: Transition, reason: Cause, message: str) -> Decision:
    return Decision((Enter(transition, reason, message),), message)
