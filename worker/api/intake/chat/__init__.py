"""A conversation to go on with, in one neutral form; each chat API is an adapter of it.

An API makes a `ChatInput` of its body from the parts below, and `ask` makes a `Generation` of it.

    chat_input      the neutral form
    chat_request    OpenAI's body, which paths of llama-server read too
    past_message, content_parts, placeholders
                    messages and their parts, whatever client wrote them. Of the newest question an
                    API calls `check_pictures`: what the model cannot see there is an error
    tools           what may be called
    templates       the chat template, which the operator or the file gives
    truncation      old turns that leave
    asking          rendered, tokenized, checked
"""
