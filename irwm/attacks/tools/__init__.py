"""Other people's tools, each in a process of its own: they set up logging, patch libraries and leave folders behind.

child          starts one, waits for it, and makes an error of what it says
autoround_main, mergekit_main
               what runs in it: a request as JSON on standard input, a model folder as the result
autoround, mergekit
               the attacks
"""

from irwm.attacks.tools.autoround import autoround, autoround_obstacle
from irwm.attacks.tools.mergekit import merge_with_mergekit, mergekit_obstacle

__all__ = ["autoround", "autoround_obstacle", "merge_with_mergekit", "mergekit_obstacle"]
