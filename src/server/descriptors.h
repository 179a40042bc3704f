/* File descriptors: a connection takes one, and a generating request one more (watch_client in call.c). Loop thread. */
#ifndef SERVER_DESCRIPTORS_H
#define SERVER_DESCRIPTORS_H

#include <event2/http.h>

enum { SERVER_SPARE_DESCRIPTORS = 32 /* below the process's limit: for answers, /health and the program itself */ };

/* Raises the process's limit as far as it goes. */
void descriptors_raise(void);
/* A new descriptor came so near the limit that it had better be given back. */
int descriptors_scarce(int fd);
/* Longer line of unaccepted connections; and with no descriptor left, accepting pauses until descriptors_tick instead
 * of failing over and over. */
void descriptors_guard(struct evhttp_bound_socket *socket);
void descriptors_tick(struct evhttp_bound_socket *socket); /* NULL is allowed */

#endif
