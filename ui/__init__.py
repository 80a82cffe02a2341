"""The user interface: pages, components and jobs.

`ui.offline` is imported here, before anything else can import Gradio, because Gradio and the Hugging Face libraries
read their switches from the environment when they are imported.
"""

from ui import offline

offline.apply()
