"""A served model's log-probabilities, asked for and kept: `python app.py collect` (docs/answers.md).

    plan       what is asked of whom, and how many requests that takes; sends nothing
    prompts    the texts that are asked, drawn from a seed
    dialects   how a server is asked, and where in its answer the log-probabilities stand
    names      which token a server means by a piece of text
    scale      chosen tokens that were told a few at a time, on one scale
    sending    one request: rate, retries, time limits, the token for the API
    journal    the file that grows answer by answer, and outlives a kill
    recorder   all of it together

Nothing here sends anything unless it is handed a permission (`sending.Permission`).
"""
