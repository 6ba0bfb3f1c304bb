"""One rank's share of a schedule, compiled to a flat program that a loop can run without thinking.

The program is a list of instructions (code, a, b, c):

    POST a b c   post receive number a from peer c into view b
    SEND a b c   post send number a of view b to peer c
    GOT  a b     wait for receive a, which lands in view b
    SENT a       wait for send a
    ADD  a b c   reduce view b into view a; c = 1 where b, the received operand, comes first: the lower rank's operand
                 always does, so that two ranks that add the same pair get the same bits (think of max(-0.0, 0.0))
    COPY a b     copy view b into view a

Views are numbered: first the pieces of the caller's buffer, then those of the scratch buffer. All hazards are settled
here, once: nothing is overwritten while it is being sent or before it was read.

Long messages travel in pieces, so that adding one piece overlaps the arrival of the next and finds it in the cache.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, takewhile
from typing import NamedTuple

from dthw.collectives.schedule import Schedule

POST, SEND, GOT, SENT, ADD, COPY = range(6)

CACHE_BYTES = 1 << 22
WINDOW = 2  # receives posted ahead of the one being waited for

Instruction = tuple[int, int, int, int]


def piece_bytes(ranks: int) -> int:
    """Bytes of a piece: a share of the cache, as ranks on one machine share it; small ones cost too many calls.

    It depends on the number of ranks alone, since both ends must cut a message alike. On two cores 2 MiB were best for
    2 ranks, 1 MiB for 4 and 512 KiB for 8.
    """
    return min(max(CACHE_BYTES // ranks, 1 << 18), 1 << 21)


class Message(NamedTuple):
    """One message as this rank sees it: elements lo to hi - 1 of its buffer, from or to ``peer``."""

    peer: int  # in the schedule's own numbering
    lo: int
    hi: int
    op: str
    chunk: int
    n_chunks: int


class Turn(NamedTuple):
    """What one rank does in one round; ``number`` counts the schedule's rounds from 1."""

    number: int
    sends: list[Message]
    receives: list[Message]

    @property
    def guarded(self) -> bool:
        """Whether something received would overwrite something sent in the same round."""
        return any(_overlap(r, s) for r in self.receives for s in self.sends)


class Label(NamedTuple):
    """What send or receive number i of a program is about, for errors, counters and traces."""

    round: int
    peer: int
    message: Message
    first: bool  # the first piece of its message


@dataclass
class Plan:
    """The program of one rank, with the views it needs."""

    turns: list[Turn]
    program: list[Instruction] = field(default_factory=list)
    buffer_views: list[tuple[int, int]] = field(default_factory=list)
    scratch_views: list[tuple[int, int]] = field(default_factory=list)
    scratch_size: int = 0
    sends: list[Label] = field(default_factory=list)
    receives: list[Label] = field(default_factory=list)


def turns(schedule: Schedule, rank: int, count: int) -> Iterator[Turn]:
    """The rounds in which this rank sends or receives anything, with real element bounds."""
    bounds = schedule.bounds(count).tolist()
    for number, r in enumerate(schedule.rounds(rank), start=1):
        turn = Turn(number, [], [])
        for src, dst, lo, n, op in zip(*(column.tolist() for column in r), strict=True):
            start, stop = bounds[lo], bounds[lo + n]
            if start < stop:
                mine, peer = (turn.sends, dst) if src == rank else (turn.receives, src)
                mine.append(Message(peer, start, stop, op, lo, n))
        if turn.sends or turn.receives:
            yield turn


@lru_cache(maxsize=1024)
def compile_plan(schedule: Schedule, order: tuple[int, ...], rank: int, count: int, itemsize: int) -> Plan:
    """The program of group rank ``rank`` for ``count`` elements of ``itemsize`` bytes; cached.

    ``order[i]`` is the group rank that plays rank i of the schedule. Cost: about linear in the messages of this rank
    (one of a 1,024-ring compiles in 0.1 s).
    """
    place = order.index(rank)
    return _Compiler(
        list(turns(schedule, place, count)), place, order, max(1, piece_bytes(schedule.ranks) // itemsize)
    ).plan


class _Receive(NamedTuple):
    turn: int
    peer: int
    lo: int
    hi: int
    message: Message
    target: int  # view the bytes land in
    direct: bool  # they land in the caller's buffer itself


class _Send(NamedTuple):
    turn: int
    lo: int
    hi: int
    message: Message


class _Compiler:
    """Walks over the turns once and emits instructions, keeping receives posted ahead as far as hazards allow."""

    def __init__(self, all_turns: list[Turn], place: int, order: tuple[int, ...], piece: int) -> None:
        self.plan = Plan(all_turns)
        self.guarded = [turn.guarded for turn in all_turns]
        self.place, self.order = place, order
        self.piece = piece
        self.numbers: dict[tuple[str, int, int], int] = {}
        self.pending: dict[int, tuple[int, int, int]] = {}  # sends under way: number -> (turn, lo, hi)
        self.queue = self._lay_out()
        self.posted = self.consumed = 0
        self.waiting: list[_Receive] = []  # received, but to be added together with others
        self.unfinished: list[_Receive] = []  # of the present turn: not yet in the caller's buffer
        self.outgoing = deque(
            _Send(t, lo, hi, m) for t, turn in enumerate(all_turns) for m in turn.sends for lo, hi in self._pieces(m)
        )
        for t in range(len(all_turns)):
            self._turn(t)
        for send in list(self.pending):
            self._wait_send(send)
        self._number_views()

    # -- scratch space ------------------------------------------------------------------------------------------------

    def _lay_out(self) -> list[_Receive]:
        """Every piece to be received, in order, with the place where it lands.

        Sums of unguarded turns rotate through WINDOW slots. A guarded turn needs room for all that comes in; two such
        areas take turns, so that one round's receives can be posted while the one before is being added.
        """
        slot = 0
        areas = [0, 0]
        for t, turn in enumerate(self.plan.turns):
            if self.guarded[t]:
                areas[t % 2] = max(areas[t % 2], sum(m.hi - m.lo for m in turn.receives))
            else:
                slot = max([slot, *(min(m.hi - m.lo, self.piece) for m in turn.receives if m.op == "+")])
        starts = [WINDOW * slot, WINDOW * slot + areas[0]]
        self.plan.scratch_size = WINDOW * slot + sum(areas)
        queue, sums = [], 0
        for t, turn in enumerate(self.plan.turns):
            at = starts[t % 2]
            for m in turn.receives:
                for lo, hi in self._pieces(m):
                    direct = not self.guarded[t] and m.op == "="
                    if self.guarded[t]:
                        place, at = at, at + hi - lo
                    elif m.op == "+":
                        place, sums = (sums % WINDOW) * slot, sums + 1
                    else:
                        place = 0
                    target = self._view("buffer", lo, hi) if direct else self._view("scratch", place, place + hi - lo)
                    queue.append(_Receive(t, m.peer, lo, hi, m, target, direct))
        return queue

    def _pieces(self, m: Message) -> Iterator[tuple[int, int]]:
        for lo in range(m.lo, m.hi, self.piece):
            yield lo, min(lo + self.piece, m.hi)

    def _view(self, where: str, lo: int, hi: int) -> int:
        return self.numbers.setdefault((where, lo, hi), len(self.numbers))

    def _number_views(self) -> None:
        """Put the buffer's views before the scratch's, so that each call binds only the former."""
        in_buffer = [key for key in self.numbers if key[0] == "buffer"]
        in_scratch = [key for key in self.numbers if key[0] == "scratch"]
        new = {self.numbers[key]: i for i, key in enumerate(in_buffer + in_scratch)}
        self.plan.buffer_views = [key[1:] for key in in_buffer]
        self.plan.scratch_views = [key[1:] for key in in_scratch]
        is_view = {POST: (1,), SEND: (1,), GOT: (1,), ADD: (0, 1), COPY: (0, 1)}
        self.plan.program = [
            (code, *(new[x] if i in is_view.get(code, ()) else x for i, x in enumerate(args)))  # type: ignore[misc]
            for code, *args in self.plan.program
        ]

    # -- instructions -------------------------------------------------------------------------------------------------

    def _emit(self, code: int, a: int, b: int = 0, c: int = 0) -> None:
        self.plan.program.append((code, a, b, c))

    def _wait_send(self, send: int) -> None:
        self._emit(SENT, send)
        del self.pending[send]

    def _settle(self, lo: int, hi: int) -> None:
        """Before elements lo..hi-1 are written: wait for the sends that still read them."""
        for send, (_, a, b) in list(self.pending.items()):
            if a < hi and lo < b:
                self._wait_send(send)

    def _turn(self, t: int) -> None:
        self._post(t)
        while self.outgoing and self.outgoing[0].turn == t:
            self._send(self.outgoing.popleft())
        self._post(t)
        self.unfinished = list(takewhile(lambda piece: piece.turn == t, islice(self.queue, self.consumed, None)))
        while self.consumed < len(self.queue) and self.queue[self.consumed].turn == t:
            self._consume(self.queue[self.consumed])
            self._post(t)
            self._pass_on(t)
        for piece in self.waiting:  # ranges that overlap only in part
            self._add(piece)
        self.waiting.clear()
        for send, (turn, _, _) in list(self.pending.items()):
            if turn < t:
                self._wait_send(send)

    def _send(self, piece: _Send) -> None:
        number = len(self.plan.sends)
        m = piece.message
        self.pending[number] = (piece.turn, piece.lo, piece.hi)
        self._emit(SEND, number, self._view("buffer", piece.lo, piece.hi), self.order[m.peer])
        self.plan.sends.append(Label(self.plan.turns[piece.turn].number, self.order[m.peer], m, piece.lo == m.lo))

    def _pass_on(self, t: int) -> None:
        """Hand over what the next turn sends as soon as this turn has finished with it, while the cache still holds it.

        In order, so that the receiver, which posts in order, finds it so.
        """
        while self.outgoing and self.outgoing[0].turn == t + 1:
            piece = self.outgoing[0]
            if any(r.lo < piece.hi and piece.lo < r.hi for r in self.unfinished):
                return
            self._send(self.outgoing.popleft())

    def _post(self, t: int) -> None:
        """Post receives in order, up to the window, and up to the next turn as far as nothing now under way is hurt."""
        while self.posted < len(self.queue):
            piece = self.queue[self.posted]
            guarded = self.guarded[piece.turn]
            if piece.turn > t + 1 or (not guarded and self.posted >= self.consumed + WINDOW):
                return
            if piece.turn > t and piece.direct:
                now = self.plan.turns[t]
                if any(m.lo < piece.hi and piece.lo < m.hi for m in now.sends + now.receives):
                    return
            if piece.direct:
                self._settle(piece.lo, piece.hi)
            peer = self.order[piece.peer]
            self._emit(POST, self.posted, piece.target, peer)
            label = Label(self.plan.turns[piece.turn].number, peer, piece.message, piece.lo == piece.message.lo)
            self.plan.receives.append(label)
            self.posted += 1

    def _consume(self, piece: _Receive) -> None:
        self._emit(GOT, self.consumed, piece.target)
        self.consumed += 1
        if piece.direct:
            self.unfinished.remove(piece)
        elif piece.message.op == "=":
            self._settle(piece.lo, piece.hi)
            self._emit(COPY, self._view("buffer", piece.lo, piece.hi), piece.target)
            self.unfinished.remove(piece)
        elif self.guarded[piece.turn]:
            self._add_in_order(piece)
        else:
            self._add(piece)

    def _add(self, piece: _Receive) -> None:
        self._settle(piece.lo, piece.hi)
        self._emit(ADD, self._view("buffer", piece.lo, piece.hi), piece.target, int(piece.peer < self.place))
        self.unfinished.remove(piece)

    def _add_in_order(self, piece: _Receive) -> None:
        """Where several ranks add the same operands, each in its own buffer, they must do so in one order: by rank."""
        self.waiting.append(piece)
        together = [w for w in self.waiting if (w.lo, w.hi) == (piece.lo, piece.hi)]
        covering = [m for m in self.plan.turns[piece.turn].receives if m.lo <= piece.lo and piece.hi <= m.hi]
        if len(together) < len(covering):
            return
        self.waiting = [w for w in self.waiting if w not in together]
        together.sort(key=lambda w: w.peer)
        before = [w for w in together if w.peer < self.place]
        for later in before[1:]:
            self._emit(ADD, before[0].target, later.target)
            self.unfinished.remove(later)
        for operand in before[:1] + [w for w in together if w.peer > self.place]:
            self._add(operand)


def _overlap(a: Message, b: Message) -> bool:
    return a.lo < b.hi and b.lo < a.hi
