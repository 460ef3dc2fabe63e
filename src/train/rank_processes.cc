#include "train/rank_processes.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace levada::train {
namespace {

// A forked rank: its life hangs on rank 0's, which alone decides what a signal means.
void become_peer(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it died before the line above
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
}

}  // namespace

RankProcesses::RankProcesses(std::int64_t rank, std::int64_t world, std::vector<Fd> peers, std::vector<pid_t> children)
    : collective_(std::make_unique<SocketCollective>(rank, world, std::move(peers))), children_(std::move(children)) {}

Result<RankProcesses> RankProcesses::start(std::int64_t world) {
  const pid_t parent = ::getpid();
  std::vector<Fd> peers;
  std::vector<pid_t> children;
  for (std::int64_t rank = 1; rank < world; ++rank) {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return unavailable("rank " + std::to_string(rank) + " did not start: " + std::strerror(errno));
    }
    Fd ours(ends[0]), theirs(ends[1]);
    const pid_t child = ::fork();
    if (child < 0) return unavailable("rank " + std::to_string(rank) + " did not start: " + std::strerror(errno));
    if (child == 0) {
      become_peer(parent);
      peers.clear();  // of the ranks before it: rank 0's ends
      peers.push_back(std::move(theirs));
      return RankProcesses(rank, world, std::move(peers), {});
    }
    peers.push_back(std::move(ours));
    children.push_back(child);
  }
  return RankProcesses(0, world, std::move(peers), std::move(children));
}

RankProcesses::~RankProcesses() {
  collective_.reset();
  for (const pid_t child : children_) {
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

}  // namespace levada::train
