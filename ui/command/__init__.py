"""The command line: `python app.py protect|investigate|trace|collect`, for release pipelines. No page and no Gradio.

    parser       what may be typed
    passphrase   where the passphrase is read from: a pipe or the keyboard, never an argument or the environment
    run          carries a command out as a job like any page's
    collect      records a served model's answers; in this process, since it is no job
    typed        what was typed, as paths and files
    progress     how far it is, on standard error
    words        the one JSON document on standard output, and the exit status

docs/headless.md says how to use it.
"""
