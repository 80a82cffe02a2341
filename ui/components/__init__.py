"""Parts that several pages share. What turns a value into HTML is a pure function; what makes Gradio components is not.

verdict_card    the answer, at arm's length          notices       errors and empty states
job_card        a running task, with Stop            path_picker   a folder browser on the server's side
lock_gate       who may look                         header        the strip at the top
"""
