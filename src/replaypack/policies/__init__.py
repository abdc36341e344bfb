"""What is done to values on their way into keys and archives. Pure: values in, values out."""
