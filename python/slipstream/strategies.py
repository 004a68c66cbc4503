# SPDX-License-Identifier: Apache-2.0
"""The strategies, one class each, for help(): `help(slipstream.strategies.lags)`. A dash in a name is an underscore."""
from . import _core


def __getattr__(attribute):
    name = attribute.replace("_", "-")
    if name not in _core.strategy_names():
        raise AttributeError(f"there is no strategy {name!r}; there are {', '.join(_core.strategy_names())}")
    made = type(attribute, (), {"__doc__": _core.explain(name), "__module__": __name__, "name": name})
    globals()[attribute] = made
    return made


def __dir__():
    return [name.replace("-", "_") for name in _core.strategy_names()]
