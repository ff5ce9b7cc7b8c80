"""One run of a training program: it decides when to save and when to end; frameworks' adapters translate.

    import dormouse_trainer as dormouse
    run = dormouse.Run()                  # before the slow imports: a signal during them is not lost
    run.keep(model=model)                 # saved when asked, restored on a resume
    for step in run.steps(500):
        loss = train(model, step)
        run.report(loss=loss)

What happens after each step, in this order:

1. All ranks *agree* (`agree_with`): each gives what it was asked for, each gets the maximum. A signal that
   reached one rank is seen by all at the same step; a signal alone starts no collective.
2. If a save is due (asked for, every `save_every` steps, before the end), it is written, manifest last.
3. The step counts as done, and progress is reported.
4. If a stop was agreed, the loop ends. If the members have changed, they meet anew ([`elastic`]).

A process of a job ignores signals once its loop has ended: what they ask for is done.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence

from . import batch
from .checkpoints import Checkpoint, Saving, read
from .elastic import Elastic
from .kept import FILE, Kept
from .place import Place
from .progress import Progress
from .requests import MEMBERS, Requests

#: Gives every rank the maximum of what the ranks gave, entry by entry.
Agreement = Callable[[List[float]], Sequence[float]]


# Stop, save and generation; what the batch adds comes after them.
_REQUESTS = 3


class Verdict(NamedTuple):
    """What all ranks agreed on for one step."""

    stop: bool = False
    save: bool = False
    generation: int = 0
    #: The save was asked for: it is not the run's own.
    asked: bool = False

    def __or__(self, other: "Verdict") -> "Verdict":
        return Verdict(*map(max, self, other))


class Run:
    """One run of this process in its job.

    `save_every`: also save each so many steps (0: only when asked). `agree_every`: ranks agree each so many
    steps. `shards`: every rank writes its own files of a checkpoint, not the coordinator alone. `signals`: False
    leaves the signals alone (asked by [`ask_stop`], [`ask_save`] or the checkpoint command only). `echo`: also
    prints the lines of progress.
    """

    def __init__(
        self,
        *,
        save_every: int = 0,
        agree_every: int = 1,
        report_every_s: float = 1.0,
        shards: bool = False,
        signals: bool = True,
        echo: bool = False,
        environ=None,
    ):
        self.place = Place.of(environ)
        self.rank, self.world_size = self.place.rank, self.place.world_size
        self.save_every, self.agree_every, self.shards = save_every, max(1, agree_every), shards
        self.requests = Requests(self.place.save_request, members=MEMBERS if self.place.members else None)
        self._signals = signals and self.requests.install()
        self._agree: Optional[Agreement] = None
        self._progress = Progress(self.place.progress, report_every_s, echo)
        self._kept = Kept()
        self._writers: List[Callable[[Path], Any]] = []
        self.elastic = Elastic(self)
        #: The checkpoint that this run goes on from, if any.
        self.resumed: Optional[Checkpoint] = None
        # Who joins later gets the coordinator's state; what the incarnation began from may be gone.
        if self.place.resume_from and not self.place.generation:
            self.resumed = read(self.place.resume_from)
        #: Steps done; with an elastic batch, steps of the smallest batch.
        self.done = self.resumed.step if self.resumed else 0
        #: The global batch, once the program has said its size ([`batch_of`]).
        self.batch = batch.Batch(self, 1)
        self.total = 0
        #: The loop ended because it was asked to; because this member left.
        self.stopped = False
        self.left = False
        self._in_step = False
        self._again = False
        self._reports = False
        self._saved_at: Optional[int] = None
        self._verdict: Optional[Verdict] = None

    # ── the place ────────────────────────────────────────────────────────────────────────────────

    @property
    def is_coordinator(self) -> bool:
        """Rank 0 saves and reports."""
        return self.rank == 0

    def agree_with(self, agreement: Agreement) -> None:
        """How the ranks agree: adapters of frameworks give it. Without one, each rank is on its own."""
        self._agree = agreement

    def batch_of(self, size: int, *, linear: bool = False, share_max: int = 0) -> batch.Batch:
        """The global batch: of `size` samples, or elastic where the job's document has bounds ([`batch`]).
        `linear`: a step at twice the batch is worth two steps. `share_max`: the most samples of a rank."""
        least, most = self.place.batch_min, self.place.batch_max
        if least is None or most is None:
            self.batch = batch.Batch(self, size)
        else:
            self.batch = batch.ElasticBatch(self, least, most, linear, share_max)
        if self.resumed and (self.resumed / batch.FILE).exists():
            self.batch.load_state_dict(json.loads((self.resumed / batch.FILE).read_bytes()))
        return self.batch

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────

    def steps(self, total: int) -> Iterator[int]:
        """The steps that are left, from where the checkpoint stands to `total`."""
        self.begin(total)
        try:
            while not self.is_over:
                if not self.elastic.enter():
                    break
                self._forget()
                self._in_step = True
                yield self.done
                self._in_step = False
                self.step_done()
        finally:
            self._in_step = False
            # Not after an error: the signals are needed until the process ends by it.
            if self.is_over:
                self.end()

    def _forget(self) -> None:
        """Before a step: what was agreed before it is over, but for a save that has not been made."""
        if self._verdict is not None and self._verdict.save and self._saved_at != self.done:
            self.requests.ask_save()
        self._verdict, self._again = None, False

    def begin(self, total: int) -> None:
        """Begins a loop that the caller drives by [`step_done`]: adapters use this."""
        self.total = total

    @property
    def is_over(self) -> bool:
        """Whether no step is to be done any more."""
        return self.done >= self.total or self.stopped or self.left

    def in_step(self, **metrics) -> None:
        """For callers of [`step_done`]: the step before it has been done; reports its metrics."""
        self._forget()
        self._in_step = True
        self.report(**metrics)

    def step_done(self, write: Optional[Callable[[Path], Any]] = None) -> bool:
        """A step has been done; saves by `write` if a save is due. Whether the loop is to end."""
        if self._again:
            return self.is_over
        self._in_step = True
        try:
            verdict = self.elastic.guard(self._decide)
            if verdict is None:
                return self.is_over
            if verdict.save and self._saved_at != self._at:
                self._save_due(verdict, write)
        finally:
            self._in_step = False
        self.count(verdict.stop)
        if not self.is_over:
            self.elastic.change(verdict.generation)
        return self.is_over

    def count(self, stop: bool = False) -> None:
        """One more step is done."""
        steps = self._steps
        self.done += steps
        metrics = self.batch.metrics()
        self.batch.count(steps, is_timed=self._saved_at != self.done)
        self._verdict = None
        self.stopped = self.stopped or stop
        if self.is_coordinator and not self._reports:
            self._progress.report(self.done, self.total, metrics, now=self.is_over)

    def attempt(self):
        """`with run.attempt():` around a step of a job that is resized in place: a member's death interrupts it,
        and it is done again by those who are left."""
        return self.elastic.attempt()

    def stop_alone(self) -> None:
        """Stops while the others cannot be asked: the coordinator saves what it has."""
        self.stopped = True
        if self.is_coordinator and self.place.checkpoint is not None and self._saved_at != self._at:
            self._save_due(Verdict(stop=True, save=True), None)

    def end(self) -> None:
        """The training is over. In a job, signals are ignored from here on; elsewhere they are given back."""
        if self.is_coordinator:
            self._progress.flush()
        if self.place.checkpoint is not None:
            self.requests.ignore()
        else:
            self.requests.restore()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind, _value, _trace) -> None:
        if kind is None:
            self.end()
        else:
            self.requests.restore()

    # ── what is asked ────────────────────────────────────────────────────────────────────────────

    def ask_save(self) -> None:
        """Asks this run to save after its present step; from any thread."""
        self.requests.ask_save()

    def ask_stop(self) -> None:
        """Asks this run to save and end after its present step; from any thread."""
        self.requests.ask_stop()

    @property
    def save_due(self) -> bool:
        """Whether to save now, after this step. All ranks see the same."""
        return self._decide().save and self._saved_at != self._at

    @property
    def is_asked(self) -> bool:
        """Whether the save or stop that is due was asked for, by a signal, the checkpoint command or [`ask_save`]."""
        return self._decide().asked

    @property
    def stop_due(self) -> bool:
        """Whether this step is the last one. All ranks see the same."""
        return self._decide().stop

    def poll(self) -> bool:
        """For long loops outside the training step, such as an evaluation: saves what is kept when a save was
        asked for, and is True when the loop is to be left because a stop was. Every rank calls it equally often."""
        verdict = self._decide(anew=True)
        if verdict.save and not verdict.stop and self._keeps and self._saved_at != self._at:
            self.save()
        if verdict.stop and not self._in_step:
            if self._saved_at != self._at:
                self._save_due(verdict, None)
            self.stopped = True
        return verdict.stop

    def watch(self, items: Iterable) -> Iterator:
        """`for batch in run.watch(batches)`: ends early when a stop was asked for ([`poll`])."""
        for item in items:
            yield item
            if self.poll():
                return

    @property
    def _at(self) -> int:
        """The step that a save or report made now stands for."""
        return self.done + self._steps if self._in_step else self.done

    @property
    def _steps(self) -> int:
        """How many steps the present one counts as."""
        return self.batch.steps(self.total - self.done)

    @property
    def is_in_step(self) -> bool:
        """Whether a step has begun that does not count yet."""
        return self._in_step

    def _passes(self, every: int) -> bool:
        """Whether the present step ends at a multiple of `every`, or goes past one."""
        at = self._at
        return at // every > self.done // every if self._in_step else at % every == 0

    def wishes(self) -> List[float]:
        """What this rank was asked for, to be sent along with a collective of the caller's own: then call
        [`agreed`] with the sum or maximum over the ranks."""
        save = self.requests.save_wanted()
        return [float(self.requests.stop), float(save), float(self.elastic.look()), *self.batch.wishes()]

    def agreed(self, values: Sequence[float]) -> None:
        """What all ranks were asked for, for this step."""
        verdict = Verdict(values[0] > 0, values[1] > 0, int(values[2]) if len(values) > 2 else 0)
        self._verdict = (self._verdict or Verdict()) | self._rounded(verdict)
        self.batch.agreed(values[_REQUESTS:])

    def _decide(self, anew: bool = False) -> Verdict:
        if self._verdict is None or anew:
            due = self._agree is None or self._passes(self.agree_every) or self._at >= self.total or anew
            if due:
                wishes = self.wishes()
                # Without an agreement the ranks cannot change their batch together.
                alone = wishes if self.world_size == 1 else wishes[:_REQUESTS]
                self.agreed(self._agree(wishes) if self._agree else alone)
            else:
                self._verdict = self._rounded(Verdict())
        return self._verdict

    def _rounded(self, verdict: Verdict) -> Verdict:
        """With the saves that need no asking."""
        at = self._at
        by_itself = self._in_step and (at >= self.total or (self.save_every > 0 and self._passes(self.save_every)))
        save = self.place.checkpoint is not None and (verdict.save or verdict.stop or by_itself)
        return verdict._replace(save=save, asked=verdict.save or verdict.stop)

    # ── checkpoints ──────────────────────────────────────────────────────────────────────────────

    def keep(self, **objects: Any) -> None:
        """Saves these objects in every checkpoint; restores them now, in place, on a resume."""
        self._kept.add(**objects)
        if self.resumed:
            self._kept.loads((self.resumed / FILE).read_bytes(), objects)

    def keep_by(self, write: Callable[[Path], Any]) -> None:
        """Also calls `write(folder)` in every checkpoint, on all ranks if the run has `shards`: adapters of
        frameworks that write files of their own use this, and read them again from [`resumed`]."""
        self._writers.append(write)

    @property
    def _keeps(self) -> bool:
        return bool(len(self._kept) or self._writers)

    def position(self) -> dict:
        """Where the coordinator stands, for members who meet it."""
        self.batch.meet()
        return {"done": self.done, "batch": self.batch.state_dict()}

    def go_to(self, position: dict) -> None:
        """Takes up the coordinator's position."""
        self.done = position["done"]
        if position.get("batch") and self.batch.is_elastic:
            self.batch.load_state_dict(position["batch"])

    def state(self) -> bytes:
        """What is kept, as bytes."""
        return self._kept.dumps()

    def restore(self, state: bytes) -> None:
        """Puts another member's state in the place of this one's."""
        self._kept.loads(state)

    @contextlib.contextmanager
    def saving(self) -> Iterator[Path]:
        """`with run.saving() as folder:` write files there; they are the checkpoint when the block ends without an
        error. The coordinator alone saves: the other ranks get a folder that nobody reads, unless the run has
        `shards`."""
        if self.place.checkpoint is None:
            raise RuntimeError("DORMOUSE_CHECKPOINT_DIR is not set: there is nowhere to save; look at run.save_due")
        at = self._at
        if not (self.is_coordinator or self.shards):
            import tempfile

            with tempfile.TemporaryDirectory(prefix="dormouse-") as nowhere:
                yield Path(nowhere)
            self._saved_at = at
            return
        saving = Saving(self.place.checkpoint, at)
        if self.is_coordinator:
            saving.begin()
        self._meet()
        try:
            yield saving.folder
            state = self.batch.state_dict()
            if self.is_coordinator and state:
                (saving.folder / batch.FILE).write_text(json.dumps(state))
        except BaseException:
            saving.give_up()
            raise
        # Every rank has written before the coordinator counts.
        self._meet()
        if self.is_coordinator:
            saving.commit()
        self._saved_at = at

    def _meet(self) -> None:
        if self.shards and self._agree is not None:
            self._agree([0.0] * _REQUESTS)

    def save(self, write: Optional[Callable[[Path], Any]] = None) -> None:
        """Saves what is kept, and what `write(folder)` writes."""
        if not (self.is_coordinator or self.shards):
            self._saved_at = self._at
            return
        with self.saving() as folder:
            if len(self._kept) and self.is_coordinator:
                self._kept.write(folder)
            for writer in self._writers:
                writer(folder)
            if write is not None:
                write(folder)

    def _save_due(self, verdict: Verdict, write: Optional[Callable[[Path], Any]]) -> None:
        if write is None and not self._keeps:
            if verdict.stop and (self.is_coordinator or self.shards):
                _say("a save was asked for at step %d, and nothing was saved: call run.keep, or look at run.save_due" % self._at)
            return
        try:
            self.save(write)
        except OSError as error:
            # A full disk must not end a training that runs on; one that ends must not look saved.
            if verdict.stop or self._at >= self.total:
                raise
            _say("the checkpoint of step %d was not saved (%s); the one before it stands" % (self._at, error))

    # ── progress ─────────────────────────────────────────────────────────────────────────────────

    @property
    def report_due(self) -> bool:
        """Whether [`report`] would write a line now: for metrics that cost something. A function as metric is
        called only then, too."""
        return self.is_coordinator and (self._progress.is_due or self._at >= self.total or self._ends)

    def report(self, **metrics) -> None:
        """The metrics of this step; at most one line a second is written, and the last one always."""
        if self.is_coordinator:
            now = self._at >= self.total or self._ends
            self._reports = True
            self._progress.report(self._at, self.total, {**metrics, **self.batch.metrics()}, now=now)

    @property
    def _ends(self) -> bool:
        return self._verdict is not None and self._verdict.stop


def _say(text: str) -> None:
    print("dormouse_trainer: " + text, file=sys.stderr, flush=True)
