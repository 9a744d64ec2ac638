"""What can go wrong for an applier, as scenarios with names, on whatever libnvidia-ml.so.1 pynvml loads.

A scenario is a function of a `Stage` that yields a line for everything that is wrong. It makes and destroys MIG
instances on the GPUs of its stage, and counts its cases. Strangers act through NVML alone. What only the stand-in can
be told to do is left out on other libraries.
"""

from driver.scenes import SCENES, play

from reliability.interruptions import a1, a2, a3, a4, a5, a22, a23
from reliability.stage import Stage
from reliability.strangers import a6, a7, a8, a9, a15, a19
from reliability.surroundings import a10, a11, a12, a13, a14, a17, a18, a20, a24, a25

__all__ = ["SCENARIOS", "Stage", "played"]


def scenes(*names, standin=False):
    """A scenario that plays scenes of ``benchmarks/scenarios.yaml``."""

    def played(stage):
        for name in names:
            scene = SCENES[name] | {"type": stage.kind}
            if "standin" in scene and not stage.node:
                continue
            state = stage.case(stood=False)

            def tell(scene):
                if (told := scene.get("standin")) and "settles" in told:
                    stage.node.settle(0, told["settles"])

            reset = (lambda: stage.node.reset(0)) if stage.node else (lambda: None)
            yield from (f"{name}: {line}" for line in play(scene, state, tell, reset, stage.gpus[:1]))

    played.__doc__ = "; ".join(SCENES[name]["symptom"] for name in names) + "."
    return played


SCENARIOS = {
    "A1": a1, "A2": a2, "A3": a3, "A4": a4, "A5": a5, "A6": a6, "A7": a7, "A8": a8, "A9": a9, "A10": a10,
    "A11": a11, "A12": a12, "A13": a13, "A14": a14, "A15": a15,
    "A16": scenes("made-halfway-and-destroyed", "made-halfway-and-not-destroyed"), "A17": a17, "A18": a18, "A19": a19,
    "A20": a20, "A21": scenes("in-use-without-a-process", "in-use-for-a-moment", "a-call-that-never-returns"),
    "A22": a22, "A23": a23, "A24": a24, "A25": a25,
}


def played(name, stage):
    """What is wrong in a scenario, as lines."""
    with stage.lit():
        try:
            return list(SCENARIOS[name](stage))
        finally:
            stage.empty()
