"""Use cases. Each module has a frozen request and one function, `run(request, vault, work)`, which does the work.

A use case does not depend on Gradio or on processes: `ui.jobs` runs it in a child process, and a program may call it
directly. Pages, endpoints and the command build the same requests (`ui.jobs.requests`).
"""
