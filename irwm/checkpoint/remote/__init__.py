"""Checkpoints on servers: only the headers and the tensors that are needed are read, each once.

A tensor is read as a whole. A server that saw which rows are read could tell which are marked.

    address   `hf://`, `https://`, `s3://` and `gs://` addresses
    servers   which servers may be asked
    listing   the files at an address: names, sizes, digests, and the commit
    web       byte ranges of one file from a web server
    store     the same from an object store
    mirror    a local folder that represents an address; bytes are fetched before their first read
    headers   the parts of a file that a parser in another process reads

`irwm.checkpoint.files` asks the mirror for each read, so that all other code opens and reads the local folder as any
other. A mirror's folder has a placeholder of each file, with its size and without its bytes. A program that reads one
directly finds zeros, which no format accepts.
"""
