/* What the server speaks: OpenAI's, Anthropic's and llama-server's endpoints. */
#ifndef API_API_H
#define API_API_H

#include "server/http.h"

extern const struct server_api api;

#endif
