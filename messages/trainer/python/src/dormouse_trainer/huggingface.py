"""Hugging Face's Trainer: its optimizer steps are the run's steps, its own checkpoints are the job's.

    run = dormouse.Run()                     # before `import transformers`
    from dormouse_trainer import huggingface
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    huggingface.train(run, trainer)

`train` adds the callback and resumes. With a call of one's own: `trainer.add_callback(huggingface.Callback(run))`
and `trainer.train(resume_from_checkpoint=huggingface.resumed(run))`. Under torchrun the ranks agree through their
process group.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Optional

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from .run import Run


def resumed(run: Run) -> Optional[str]:
    """The folder of the checkpoint, for `resume_from_checkpoint=`."""
    return str(run.resumed.folder) if run.resumed else None


class Callback(TrainerCallback):
    """Counts optimizer steps, reports what the Trainer logs, has it save when a save is due, ends it when a stop is
    agreed.

    The Trainer writes into its `output_dir`, as it always does; what it wrote becomes the job's checkpoint and, if
    only the job asked for it, leaves `output_dir` again. Checkpoints that the Trainer makes for itself stay there.
    """

    def __init__(self, run: Run):
        self._run = run
        #: Why the step's save is made: it is the job's; it is the Trainer's too.
        self._saves = self._keeps = False

    def on_train_begin(self, args, state, control, **_more):
        _agree(self._run)
        if state.global_step != self._run.done:
            raise RuntimeError(
                "the Trainer begins at step %d, the job's checkpoint stands at %d: pass "
                "resume_from_checkpoint=huggingface.resumed(run)" % (state.global_step, self._run.done)
            )
        self._run.begin(state.max_steps)

    def on_step_end(self, args, state, control, **_more):
        last = state.log_history[-1] if state.log_history else {}
        self._run.in_step(**{name: last[name] for name in ("loss", "eval_loss") if name in last})
        self._keeps = control.should_save
        self._saves = self._run.save_due
        control.should_save = control.should_save or self._saves
        if not self._saves:
            self._done(control)
        elif self._run.stop_due:
            control.should_training_stop = True
        return control

    def on_save(self, args, state, control, **_more):
        if self._saves:
            self._saves = False
            written = Path(args.output_dir) / ("%s-%d" % (PREFIX_CHECKPOINT_DIR, state.global_step))
            # In the folder of a save there is nothing yet. Files of ranks that share no disk are not gathered.
            self._run.step_done(lambda folder: shutil.copytree(written, folder, copy_function=_link, dirs_exist_ok=True))
            if self._run.is_coordinator and not self._keeps:
                shutil.rmtree(written, ignore_errors=True)
            control.should_training_stop = control.should_training_stop or self._run.stopped
        return control

    def on_train_end(self, args, state, control, **_more):
        self._run.end()

    def _done(self, control) -> None:
        self._run.step_done()
        control.should_training_stop = control.should_training_stop or self._run.stopped


def train(run: Run, trainer, **more):
    """`trainer.train`, from the checkpoint if there is one."""
    trainer.add_callback(Callback(run))
    return trainer.train(resume_from_checkpoint=resumed(run), **more)


def _agree(run: Run) -> None:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        from .torch import agree

        agree(run)


def _link(source: str, target: str) -> None:
    """The same file under another name where that can be, a copy elsewhere."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
