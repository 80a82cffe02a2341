"""The command line: `python app.py protect|investigate|trace|collect`, for release pipelines. No page and no Gradio.

    parser       the commands and their options
    passphrase   where the passphrase is read from: a pipe or the keyboard, never an argument or the environment
    run          runs a command as a job, like a page does
    collect      records a served model's answers; in this process, because it is not a job
    argument_paths  typed arguments as paths and files
    progress     the progress, on standard error
    words        the one JSON document on standard output, and the exit status

docs/headless.md describes its use.
"""
