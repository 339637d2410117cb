"""Every room with its doors, and the share of the cases that it gets."""

from . import averaging, choosing, measuring, pooling, speaking

ROOMS = {
    "groups": choosing.GROUPS,
    "shares": choosing.SHARED,
    "selection": choosing.SELECTION,
    "sign": choosing.SIGNS,
    "intervals": averaging.INTERVALS,
    "joins": averaging.JOINS,
    "budget_for": averaging.BUDGETS,
    "metrics": measuring.METRICS,
    "evaluate": measuring.EVALUATION,
    "features": measuring.IMAGES,
    "looks": pooling.LOOKS,
    "folders": pooling.FOLDERS,
    "rollout": speaking.ROLLOUTS,
    "tilt": speaking.TILTS,
    "report": speaking.REPORTS,
}
SHARES = {
    "groups": 10,
    "shares": 10,
    "selection": 12,
    "sign": 10,
    "intervals": 10,
    "joins": 6,
    "budget_for": 6,
    "metrics": 15,
    "evaluate": 1,
    "features": 2,
    "looks": 10,
    "folders": 2,
    "rollout": 8,
    "tilt": 6,
    "report": 2,
}
