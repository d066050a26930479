// Messages that wait for their turn on a stream, which writes one at a time.

#ifndef COMMON_RPC_WRITE_QUEUE_H_
#define COMMON_RPC_WRITE_QUEUE_H_

#include <deque>
#include <utility>

namespace nacre::rpc {

// Not thread-safe: the stream's lock guards it.
template <class Message>
struct WriteQueue {
  // Null: something is being written, so this waits. Otherwise the message,
  // whose write is to be started; its address stays until it is popped.
  const Message* Add(Message message) {
    messages.push_back(std::move(message));
    if (writing) return nullptr;
    writing = true;
    return &messages.front();
  }

  // The front is being written while `writing`; deque keeps its address.
  std::deque<Message> messages;
  bool writing = false;
};

}  // namespace nacre::rpc

#endif  // COMMON_RPC_WRITE_QUEUE_H_
