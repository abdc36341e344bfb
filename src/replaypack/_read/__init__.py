"""Reading a recording: frames by range request, tables page by page, blobs by recipe. Private."""
