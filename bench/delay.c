// A link of a given length: passes bytes between clients and servers, each as late as it was told.
// Knows nothing of the protocol. It stands in for a network: half of the delay lies on each way.
//
//   delay MICROSECONDS PORT...     prints one line of JSON with the ports to use instead, ends with its input
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PORTS = 16, MOST_ENDS = 1024, CHUNK = 65536, AT_ONCE = 64 };

struct chunk {
  struct chunk *next;
  double due;
  size_t from, to;
  char bytes[];
};

// One end of a link. What is read from it waits in `first` until it is due at the other end.
struct end {
  int fd, other;
  struct chunk *first, *last;
};

static struct end ends[MOST_ENDS];
static int listeners[MOST_PORTS], targets[MOST_PORTS], ports, used, watch;
static double delay;

static void give_up(const char *what) {
  perror(what);
  exit(1);
}

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

// Most of the many connections are silent: looking at all of them would take longer than the delay. The
// input has the number 0, then come the ports, then the ends.
static void watch_for(int fd, int number) {
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)number};
  if (epoll_ctl(watch, EPOLL_CTL_ADD, fd, &event)) give_up("epoll_ctl");
}

static struct sockaddr_in loopback(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

static int listen_anywhere(int *fd) {
  struct sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  *fd = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(*fd, (struct sockaddr *)&address, size) || listen(*fd, 1024)) give_up("listen");
  getsockname(*fd, (struct sockaddr *)&address, &size);
  return ntohs(address.sin_port);
}

static int free_end(void) {
  for (int i = 0; i < used; i++)
    if (ends[i].fd < 0) return i;
  if (used == MOST_ENDS) {
    errno = EMFILE;
    give_up("too many connections");
  }
  ends[used].fd = -1;
  return used++;
}

static void take_end(int index, int fd, int other) {
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ends[index] = (struct end){.fd = fd, .other = other};
  watch_for(fd, 1 + ports + index);
}

static void join(int port) {
  int client = accept(listeners[port], NULL, NULL);
  int server = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = loopback(targets[port]);
  if (client < 0 || connect(server, (struct sockaddr *)&address, sizeof address)) {
    close(client);
    close(server);
    return;
  }
  int one = free_end();
  take_end(one, client, -1);
  int two = free_end();
  take_end(two, server, one);
  ends[one].other = two;
}

static void part(int index) {
  int both[] = {index, ends[index].other};
  for (int i = 0; i < 2; i++) {
    struct end *end = &ends[both[i]];
    for (struct chunk *chunk = end->first, *next; chunk; chunk = next) {
      next = chunk->next;
      free(chunk);
    }
    close(end->fd);
    *end = (struct end){.fd = -1};
  }
}

static void take(int index) {
  static char bytes[CHUNK];
  ssize_t length = recv(ends[index].fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length <= 0) {
    part(index);
    return;
  }
  struct chunk *chunk = malloc(sizeof *chunk + (size_t)length);
  *chunk = (struct chunk){.due = now() + delay, .to = (size_t)length};
  memcpy(chunk->bytes, bytes, (size_t)length);
  struct end *end = &ends[index];
  *(end->first ? &end->last->next : &end->first) = chunk;
  end->last = chunk;
}

static void pass_on(int index, double at) {
  while (ends[index].fd >= 0 && ends[index].first && ends[index].first->due <= at) {
    struct end *end = &ends[index];
    struct chunk *chunk = end->first;
    ssize_t length = send(ends[end->other].fd, chunk->bytes + chunk->from, chunk->to - chunk->from,
                          MSG_NOSIGNAL | MSG_DONTWAIT);
    if (length < 0 && errno == EAGAIN) return;  // tried again at the next turn
    if (length < 0) {
      part(index);
      return;
    }
    chunk->from += (size_t)length;
    if (chunk->from < chunk->to) return;
    end->first = chunk->next;
    free(chunk);
  }
}

// How long to sleep: until the next chunk is due, but at most a second.
static struct timespec patience(double at) {
  double next = at + 1;
  for (int i = 0; i < used; i++)
    if (ends[i].fd >= 0 && ends[i].first && ends[i].first->due < next) next = ends[i].first->due;
  double left = next > at ? next - at : 0;
  return (struct timespec){.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
}

static void turn(void) {
  struct epoll_event events[AT_ONCE];
  struct timespec wait = patience(now());
  int count = epoll_pwait2(watch, events, AT_ONCE, &wait, NULL);
  if (count < 0 && errno != EINTR) give_up("epoll_pwait2");
  char ignored[256];
  for (int i = 0; i < count; i++) {
    int number = (int)events[i].data.u32, index = number - 1 - ports;
    if (number == 0 && read(0, ignored, sizeof ignored) <= 0) exit(0);
    if (index >= 0 && ends[index].fd >= 0) take(index);
  }
  double at = now();
  for (int i = 0; i < used; i++) pass_on(i, at);
  // Last, since a new connection may get the place of one that has just ended.
  for (int i = 0; i < count; i++) {
    int number = (int)events[i].data.u32;
    if (number > 0 && number <= ports) join(number - 1);
  }
}

int main(int argc, char **argv) {
  ports = argc - 2;
  if (ports < 1 || ports > MOST_PORTS) return 2;
  delay = atof(argv[1]) / 2e6;
  prctl(PR_SET_TIMERSLACK, 1000);
  watch = epoll_create1(0);
  printf("{\"ports\": [");
  for (int i = 0; i < ports; i++) {
    targets[i] = atoi(argv[i + 2]);
    printf(i ? ", %d" : "%d", listen_anywhere(&listeners[i]));
    watch_for(listeners[i], 1 + i);
  }
  watch_for(0, 0);
  printf("]}\n");
  fflush(stdout);
  for (;;) turn();
}
