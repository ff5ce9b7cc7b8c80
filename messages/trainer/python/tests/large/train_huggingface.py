"""A small transformer, trained by Hugging Face's Trainer. Prints every step's loss.

Arguments: steps, then `RANK:SIGNAL:STEP` for each signal that a rank sends itself within a step.
"""

import json
import os
import signal
import sys

import dormouse_trainer as dormouse

run = dormouse.Run(report_every_s=0.0)

import torch
from dormouse_trainer import huggingface
from dormouse_trainer.checkpoints import read
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

asked = {}
for word in sys.argv[2:]:
    rank, name, at = word.split(":")
    asked[int(at)] = (int(rank), getattr(signal, name))


class Signals(TrainerCallback):
    """Sends the signals, and looks at what each save left. Its step is the one under way."""

    checked = 0

    def on_step_begin(self, args, state, control, **more):
        rank, number = asked.get(state.global_step, (None, None))
        if rank == run.rank:
            os.kill(os.getpid(), number)
        _, former = asked.get(state.global_step - 1, (None, None))
        if run.is_coordinator and former == signal.SIGUSR1:
            saved = read(run.place.checkpoint)
            counted = json.loads((saved / "trainer_state.json").read_text())["global_step"]
            assert saved.step == counted == state.global_step, (saved.step, counted, state.global_step)
            Signals.checked += 1


torch.set_num_threads(1)
torch.manual_seed(3)
words = torch.randint(0, 50, (64, 8))
data = [{"input_ids": row, "labels": int(row[0] > row[1])} for row in words]
model = BertForSequenceClassification(
    BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
)
arguments = TrainingArguments(
    output_dir=os.environ["HF_OUTPUT"],
    max_steps=int(sys.argv[1]),
    per_device_train_batch_size=4,
    learning_rate=1e-3,
    logging_steps=1,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
    use_cpu=True,
    ddp_backend="gloo" if run.world_size > 1 else None,
)
trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Signals()])
huggingface.train(run, trainer)
losses = [round(entry["loss"], 4) for entry in trainer.state.log_history if "loss" in entry]
assert trainer.state.global_step == run.done, (trainer.state.global_step, run.done)
end = (run.rank, run.world_size, run.done, run.stopped, Signals.checked, json.dumps(losses))
print("rank %d of %d done %d stopped %s checked %d losses %s" % end, flush=True)
