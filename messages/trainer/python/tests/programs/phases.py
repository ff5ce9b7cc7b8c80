"""Says where it is (import, step, evaluation, save or exit) and waits there for a line: signals come meanwhile."""

import multiprocessing
import sys

import dormouse_trainer as dormouse


def phase(name):
    """Stays here until the test has sent its signals."""
    if sys.argv[1] == name:
        print("at " + name, flush=True)
        sys.stdin.readline()


class Model:
    """Its save takes a while."""

    steps = 0

    def state_dict(self):
        phase("save")
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def main():
    run, model, workers = dormouse.Run(), Model(), None
    phase("import")
    run.keep(state=model)
    if len(sys.argv) > 2:
        context = multiprocessing.get_context(sys.argv[2])
        workers = context.Pool(4, initializer=dormouse.ignore_signals)
    for step in run.steps(40):
        if workers is not None:
            assert sum(workers.map(abs, range(8))) == 28
        model.steps += 1
        if step == 0:
            phase("step")
        if step == 20 and sys.argv[1] == "save":
            run.ask_save()
        elif step == 20:
            # A stop in the middle of the evaluation ends the evaluation.
            for batch in run.watch(range(1000)):
                if batch == 3:
                    phase("evaluation")
                assert not (run.requests.stop and batch > 3), "the evaluation went on"
    phase("exit")
    if workers is not None:
        workers.close()
        workers.join()
    print("done %d stopped %s" % (run.done, run.stopped))


if __name__ == "__main__":
    main()
