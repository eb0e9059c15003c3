/** A page of Headlamp with what ttl-after-finished deletes, when, and what it keeps. */

import { registerRoute, registerSidebarEntry } from '@kinvolk/headlamp-plugin/lib';
import FinishedObjects from './FinishedObjects';

const NAME = 'finished-objects';

registerSidebarEntry({
  parent: null,
  name: NAME,
  label: 'Finished objects',
  url: `/${NAME}`,
  icon: 'mdi:timer-sand',
});

registerRoute({
  path: `/${NAME}`,
  sidebar: NAME,
  name: NAME,
  exact: true,
  component: () => <FinishedObjects />,
});
