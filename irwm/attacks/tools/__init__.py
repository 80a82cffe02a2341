"""Other people's tools, each in a process of its own: they set up logging, patch libraries and leave folders behind.

child          starts one, waits for it, and makes an error of what it says
autoround_main what runs in it: a request as JSON on standard input, a model folder as the result
autoround      the attack
"""

from irwm.attacks.tools.autoround import autoround, autoround_obstacle

__all__ = ["autoround", "autoround_obstacle"]
