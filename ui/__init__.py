"""The user interface: pages, components and jobs.

`ui.quiet` is imported here, before anything else can import Gradio, because Gradio and the Hugging Face libraries
read their switches from the environment when they are imported.
"""

from ui import quiet

quiet.apply()
