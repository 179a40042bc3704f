/* How /v1/chat/completions tells answers: the dialect's functions. Loop thread. */
#ifndef API_CHAT_H
#define API_CHAT_H

#include "api/openai.h"

int chat_piece(struct choice *choice, const cohort_event *event, struct buf *out);
int chat_collect(struct choice *choice, const cohort_event *event);
int chat_close(struct call *call, struct buf *out);
int chat_whole(struct call *call, struct buf *out);

#endif
