// A way of their own for the values of tensors, beside the stream between two
// workers that brings the headers. A transport that stands beside gRPC's stream
// implements this (nccl_link.h is the example). What both ends say about it on
// the stream, and when they fall back to that, is link_sender.h's and
// link_receiver.h's.
//
// Thread-safe. Nothing here waits for the peer.

#ifndef WORKER_TENSORS_SIDE_LINK_H_
#define WORKER_TENSORS_SIDE_LINK_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/tensors/tensor_chunks.h"

namespace nacre::worker {

enum class LinkEnd { kSender = 0, kReceiver = 1 };

// Called on a thread of the links, one call of a link at a time. Must only
// enqueue, and must not close the link.
class LinkListener {
 public:
  virtual ~LinkListener() = default;

  // Of the sender: the peer needs this id to join.
  virtual void OnId(const std::string& id) { static_cast<void>(id); }
  // The first, empty transfer is through: the link works.
  virtual void OnUp() {}
  // Of the sender: one is through, there is room for another.
  virtual void OnSent(size_t num_bytes) { static_cast<void>(num_bytes); }
  // Of the receiver: the values of the oldest Expect, as a stream has them.
  virtual void OnReceived(absl::string_view bytes) { static_cast<void>(bytes); }
  // The last call: what was under way is lost.
  virtual void OnFailed(const absl::Status& reason) = 0;
};

class SideLink {
 public:
  virtual ~SideLink() = default;

  // Of the sender. False: no room, or it is over. More than
  // SideLinks::max_bytes are fatal.
  virtual bool HasRoom() const = 0;
  virtual bool Send(std::shared_ptr<const WireTensor> tensor) = 0;
  // Of the receiver: what the sender has sent next. False: more are expected
  // than any sender has under way, or the link is over.
  virtual bool Expect(size_t num_bytes) = 0;
  // The listener is not called any more when this returns. Not from a call to
  // it.
  virtual void Close() = 0;
};

// All those of one end of a transport. Outlives them.
class SideLinks {
 public:
  virtual ~SideLinks() = default;

  // Readers ask for it, and logs say it. Both ends of a link have the same.
  virtual const char* kind() const = 0;
  virtual size_t max_bytes() const = 0;  // of one tensor's values
  // Of a library that both ends must have alike; empty: of none.
  virtual std::string version() const { return ""; }

  // `id`: of a receiver the sender's, of a sender empty.
  virtual std::shared_ptr<SideLink> Open(LinkEnd end, std::string id,
                                         LinkListener* listener) = 0;
};

}  // namespace nacre::worker

#endif  // WORKER_TENSORS_SIDE_LINK_H_
